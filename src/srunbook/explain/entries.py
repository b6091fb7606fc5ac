r"""Entries: the failures that the troubleshooting pages describe, as the wheel carries them.

A message has a literal form: `#` stands for a number, `*` for a name, `\#` and `\*` for themselves.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from srunbook._json import STRICT

Stage = Literal["submit", "queue", "start", "meet", "train", "save", "end"]
"""When it happens: `meet` is from the first call that connects the processes until all are connected."""

Symptom = Literal["refused", "hangs", "killed", "slow", "wrong result", "silent"]
"""What it looks like: `refused` is an error at once, `killed` an error or a signal in the middle of work."""

Framework = Literal["Slurm", "PyTorch", "JAX", "Lightning", "Accelerate", "Transformers", "DeepSpeed", "SVGD"]

Role = Literal["cause", "consequence", "warning"]
"""`consequence`: another rank's failure often comes before. `warning`: the run goes on, and good runs print it, too."""

PAGES = "https://srunbook.readthedocs.io/en/latest/troubleshooting"
PLACEHOLDERS = {"#": r"-?\d[\d.,]*", "*": r"[^ \t\n]+?"}
"""What each placeholder matches: `*` a name, a path or an address, but never a space."""

TOKEN = re.compile(r"\\([#*\\])|([#*])|([^#*\\]+|\\)")
OPEN_END = re.compile(r"(?:[\s(\[:]*…[\])]*)+$")


@dataclass(frozen=True)
class Entry:
    """One failure.

    Args:
        stage: When it happens.
        symptom: What it looks like.
        frameworks: Frameworks that print it, or that it happens to.
        fix: What to do, in one line.
        messages: Every literal form of its message, in all versions.
        seen: What the reader sees, in one line, if the failure has no message.
        role: What its message says about the job.
        explains: Entries whose messages follow from this one, which replaces them. A warning with this field counts
            only beside one of them, as its cause.
        source: Where the text was taken from, if it was not reproduced.
    """

    __pydantic_config__ = STRICT

    stage: Stage
    symptom: Symptom
    frameworks: tuple[Framework, ...]
    fix: str
    messages: tuple[str, ...] = ()
    seen: str = ""
    role: Role = "cause"
    explains: tuple[str, ...] = ()
    source: str = ""

    @property
    def title(self) -> str:
        """Return the page's title, which is the message without a varying end, or what the reader sees."""
        return OPEN_END.sub("", shown(self.messages[0])) if self.messages else self.seen


def page_of(slug: str) -> str:
    """Return the URL of an entry's page."""
    return f"{PAGES}/{slug}.html"


@cache
def load_entries() -> dict[str, Entry]:
    """Return the entries of this version by slug, in alphabetical order."""
    entries = {}
    for slug, fields in _shipped()["entries"].items():
        arguments: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        entries[slug] = Entry(**arguments)
    return entries


def load_ordinary() -> frozenset[str]:
    """Return the shapes of the lines that speak of trouble in the recordings of good runs."""
    return frozenset(_shipped()["ordinary"])


def load_patterns() -> dict[str, Any]:
    """Return what lines of logs look like, in regular expressions that the site's paste box uses, too."""
    return tomllib.loads(resources.files(__package__).joinpath("patterns.toml").read_text(encoding="utf-8"))


@cache
def _alike() -> list[tuple[re.Pattern[str], str]]:
    return [(compiled(pattern), text) for pattern, text in load_patterns()["alike"]]


def plain(text: str) -> str:
    """Return a text with the quotes and blanks that a form of a message has, whichever its version prints.

    >>> plain("NET/IB :  Got 'x'") == plain("NET/IB: Got `x`")
    True
    """
    for pattern, replacement in _alike():
        text = pattern.sub(replacement, text)
    return text


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern so that `\d`, `\w`, `\b` and `.` mean what they mean in JavaScript."""
    return re.compile(pattern, re.ASCII | re.DOTALL)


@cache
def _shipped() -> Any:
    return json.loads(resources.files(__package__).joinpath("entries.json").read_text(encoding="utf-8"))


def _tokens(form: str) -> Iterator[tuple[str, str]]:
    """Yield each literal piece as `("", text)` and each placeholder as `(placeholder, "")`."""
    for escaped, placeholder, literal in TOKEN.findall(form):
        yield (placeholder, "") if placeholder else ("", escaped or literal)


def literals(form: str) -> list[str]:
    r"""Return the texts between the placeholders of a form.

    >>> literals(r"\# of tasks that reached the barrier: #/#.")
    ['# of tasks that reached the barrier: ', '/', '.']
    """
    return [piece for piece in "".join(text or "\0" for _, text in _tokens(form)).split("\0") if piece]


def expression(form: str) -> str:
    r"""Return the regular expression of a form, which finds it in a plain line; a number at its end is a whole one.

    >>> print(expression("waited # s for *"))
    waited -?\d[\d.,]* s for [^ \t\n]+?
    >>> print(expression("got signal: 1"))
    got signal: 1(?!\d)
    """
    escaped = "".join(PLACEHOLDERS.get(placeholder) or re.escape(text) for placeholder, text in _tokens(plain(form)))
    return escaped.replace(r"\ ", " ") + (r"(?!\d)" if form[-1:].isdigit() else "")


def anchor(form: str) -> str:
    """Return the longest text that a plain line must contain to have this form.

    >>> anchor("rank # on * did not reach rank 0 at *")
    ' did not reach rank 0 at '
    """
    return max(literals(plain(form)), key=len)


def most_specific_first(entries: Mapping[str, Entry]) -> list[tuple[str, str]]:
    """Return the slug and the form of all messages, the longest first: a line belongs to the first form it has."""
    forms = [(slug, form) for slug, entry in entries.items() for form in entry.messages]
    return sorted(forms, key=lambda each: (-sum(map(len, literals(plain(each[1])))), each))


def shown(form: str) -> str:
    """Return a form as a reader sees it, with an ellipsis for what differs from run to run.

    >>> shown("Timed out waiting #ms for recv operation to complete")
    'Timed out waiting …ms for recv operation to complete'
    """
    return "".join("…" if placeholder else text for placeholder, text in _tokens(form))
