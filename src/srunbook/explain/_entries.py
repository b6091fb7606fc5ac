"""Entries: the failures that the troubleshooting pages describe, as the wheel carries them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from srunbook._json import STRICT
from srunbook.explain._forms import shown, wrong_form

Stage = Literal["submit", "queue", "start", "meet", "train", "save", "end"]
"""When it happens: `meet` is from the first call that connects the processes until all are connected."""

Symptom = Literal["refused", "hangs", "killed", "slow", "wrong result", "silent"]
"""What it looks like: `refused` is an error at once, `killed` an error or a signal in the middle of work."""

Framework = Literal["Slurm", "PyTorch", "JAX", "Lightning", "Accelerate", "Transformers", "DeepSpeed", "SVGD"]

Role = Literal["cause", "consequence", "warning"]
"""`consequence`: another rank's failure often comes before. `warning`: the run goes on, and good runs print it, too."""

PAGES = "https://srunbook.readthedocs.io/en/latest/troubleshooting"
LONGEST_FIX = 200
OPEN_END = re.compile(r"(?:[\s(\[:]*…[\])]*)+$")
MESSAGES = "entries.json"


@dataclass(frozen=True)
class Entry:
    """One failure.

    Args:
        stage: When it happens.
        symptom: What it looks like.
        frameworks: Who prints it, or what it happens to.
        fix: What to do, in one line.
        messages: Every literal form that versions print; see `srunbook.explain._forms`.
        seen: What the reader sees, in one line, of a failure without a message.
        role: What its message tells about the job.
        explains: Entries whose messages follow from this one. Where it is given, this entry counts only beside one
            of them, and takes its place.
        source: Where the text was taken from, if it was not reproduced.

    Raises:
        ValueError: A text is not in its form, or the entry has neither messages nor `seen`, or both.
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

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if bool(self.messages) == bool(self.seen):
            raise ValueError(
                "give `messages`, the literal forms of the message, or for a failure without a message `seen`, what "
                "the reader sees; not both"
            )
        for form in self.messages:
            if problem := wrong_form(form):
                raise ValueError(f"messages: {problem}")
        if not self.frameworks:
            raise ValueError("frameworks: name at least one")
        for name in ("fix", "seen", "source"):
            text = getattr(self, name)
            if text != " ".join(text.split()):
                raise ValueError(f"{name}: {text!r} is not one line")
        if not self.fix.endswith(".") or len(self.fix) > LONGEST_FIX:
            raise ValueError(f"fix: {self.fix!r} is not one sentence of at most {LONGEST_FIX} characters")

    @property
    def title(self) -> str:
        """Return the title of the page, which is the message up to what differs at its end, or what the reader sees."""
        return OPEN_END.sub("", shown(self.messages[0])) if self.messages else self.seen


def page_of(slug: str) -> str:
    """Return the address of an entry's page."""
    return f"{PAGES}/{slug}.html"


@cache
def load_entries() -> dict[str, Entry]:
    """Return the entries of this version by slug, in alphabetical order."""
    return {slug: Entry(**_tuples(fields)) for slug, fields in _shipped()["entries"].items()}


@cache
def load_ordinary() -> frozenset[str]:
    """Return the shapes of the lines that speak of trouble in the recordings of good runs."""
    return frozenset(_shipped()["ordinary"])


def _shipped() -> dict[str, Any]:
    text = resources.files(__package__).joinpath(MESSAGES).read_text(encoding="utf-8")
    shipped: dict[str, Any] = json.loads(text)
    return shipped


def _tuples(fields: dict[str, str | list[str]]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
