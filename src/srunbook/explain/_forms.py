r"""The literal form of a message: `#` stands for a number, `*` for a name, `\#` and `\*` for themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

PLACEHOLDERS = {"#": r"-?\d[\d.,]*", "*": r"\S+?"}
"""What each placeholder matches: `*` a name, a path or an address, but never a space."""

TOKEN = re.compile(r"\\([#*\\])|([#*])|([^#*\\]+|\\)")

FEWEST_LETTERS = 8
"""Letters that a form has of its own, at least; one with fewer would match lines of any program."""


def _tokens(form: str) -> Iterator[tuple[str, str]]:
    """Yield each literal piece as `("", text)` and each placeholder as `(placeholder, "")`."""
    for escaped, placeholder, literal in TOKEN.findall(form):
        yield (placeholder, "") if placeholder else ("", escaped or literal)


def literals(form: str) -> list[str]:
    r"""Return the texts between the placeholders of a form.

    >>> literals(r"\# of tasks that reached the barrier: #/#.")
    ['# of tasks that reached the barrier: ', '/', '.']
    """
    pieces = [""]
    for placeholder, text in _tokens(form):
        if placeholder:
            pieces.append("")
        else:
            pieces[-1] += text
    return [piece for piece in pieces if piece]


def expression(form: str) -> str:
    r"""Return the regular expression of a form.

    >>> print(expression("waited # s for *"))
    waited\ -?\d[\d.,]*\ s\ for\ \S+?
    """
    return "".join(PLACEHOLDERS.get(placeholder) or re.escape(text) for placeholder, text in _tokens(form))


def anchor(form: str) -> bytes:
    """Return the longest text that a line must contain to have this form.

    >>> anchor("rank # on * did not reach rank 0 at *")
    b' did not reach rank 0 at '
    """
    return max(literals(form), key=len).encode()


def shown(form: str) -> str:
    """Return a form as a reader sees it, with an ellipsis for what differs from run to run.

    >>> shown("Timed out waiting #ms for recv operation to complete")
    'Timed out waiting …ms for recv operation to complete'
    """
    return "".join("…" if placeholder else text for placeholder, text in _tokens(form))


def wrong_form(form: str) -> str:
    """Say what is wrong with a form, or return an empty text.

    >>> wrong_form("* #: failed")
    "'* #: failed' has 6 letters of its own and would match lines of any program: give at least 8"
    """
    if "\n" in form or form != form.strip() or not form:
        return f"{form!r} is not one line of text without spaces around it"
    letters = sum(character.isalpha() for piece in literals(form) for character in piece)
    if letters < FEWEST_LETTERS:
        return f"{form!r} has {letters} letters of its own and would match lines of any program: give at least 8"
    return ""
