"""Change a job script at some places, and keep every other byte."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from srunbook.script.directives import SPACE, Option, Script, ScriptError, words

COMMENT = re.compile(rb"( {2,})#")
"""A comment behind at least two spaces: it may be one of a column."""


@dataclass(frozen=True)
class Edit:
    """Bytes in place of others.

    Args:
        start: Offset of the first byte that goes.
        end: Offset behind the last; the same as `start` where bytes are only added.
        new: What comes in their place.
    """

    start: int
    end: int
    new: bytes


def apply(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits; a comment that follows one on its line keeps its column where there is room.

    Args:
        data: The script.
        edits: They must not overlap; those at one place are applied in their order.

    Raises:
        ValueError: Two overlap.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    if any(one.end > other.start for one, other in pairwise(ordered)):
        raise ValueError("two edits overlap")
    made, done = bytearray(), 0
    for _, group in groupby(ordered, key=lambda edit: data.rfind(b"\n", 0, edit.start)):
        changes = list(group)
        for edit in changes:
            made += data[done : edit.start] + edit.new
            done = edit.end
        gap = COMMENT.match(data, done)
        if gap and not any(b"\n" in edit.new or b"\n" in data[edit.start : edit.end] for edit in changes):
            grown = sum(width(edit.new) - width(data[edit.start : edit.end]) for edit in changes)
            made += b" " * max(2, len(gap[1]) - grown)
            done = gap.end(1)
    return bytes(made + data[done:])


def width(text: bytes) -> int:
    """Count the letters of a text."""
    return len(text.decode("utf-8", "replace"))


def directive(name: str, value: str | None) -> str:
    """Write an option so that sbatch reads it back as exactly this one word.

    Args:
        name: Its long name.
        value: Its argument; None without.

    Raises:
        ValueError: The value would end the word, the line or a quote, or begin a comment.

    >>> directive("partition", "gpu")
    '--partition=gpu'
    """
    text = f"--{name}" if value is None else f"--{name}={value}"
    _require_one_word(text, text)
    return text


def _require_one_word(text: str, value: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    try:
        found = [] if b"\n" in data or b"\0" in data else [word.text for word in words(data, 0, len(data), 1)]
    except ScriptError:
        found = []
    if found != [text]:
        raise ValueError(f"{value!r} is not one word to sbatch: it has a space, a quote, a backslash or a #")


def set_value(option: Option, value: str, name: str | None = None) -> Edit:
    """Give an option another argument; its form, such as `-p gpu`, stays where that is possible.

    Args:
        option: The option, which takes an argument.
        value: The argument.
        name: Another option in its place, by its long name.

    Raises:
        ValueError: The value would break out of the directive.
        ScriptError: The option shares a word in quotes with others.
    """
    text = directive(name or option.name, value)
    word, follows = option.word, option.value_word
    if name in (None, option.name):
        if follows and word.line == follows.line and not value.startswith("-"):
            return Edit(follows.start, follows.end, value.encode())
        if option.at is not None and word.plain:
            return Edit(
                word.start + len(word.text[: option.at].encode("utf-8", "surrogateescape")), word.end, value.encode()
            )
    if not option.alone:
        raise ScriptError(word.line, f"{word.text} is several options in one word. Write --{option.name}=VALUE")
    if follows and word.line != follows.line:
        raise ScriptError(word.line, f"--{option.name} has its value on another line. Write --{option.name}=VALUE")
    return Edit(word.start, follows.end if follows else word.end, text.encode())


def remove(script: Script, option: Option) -> Edit:
    """Take an option away: its line, if the line has no other, or else its words.

    Raises:
        ScriptError: The option shares a word with others.
    """
    ours = [option.word, *([option.value_word] if option.value_word else [])]
    line = next(line for line in script.lines if line.number == option.line)
    if not option.alone or ours[-1].line != option.line:
        raise ScriptError(option.line, f"--{option.name} shares a word or a line with others. Put it on its own line")
    if len(line.words) == len(ours):
        return Edit(*script.line_span(line.start), b"")
    start = option.word.start
    while script.data[start - 1] in SPACE:
        start -= 1
    return Edit(start, ours[-1].end, b"")


def add_directive(script: Script, name: str, value: str | None) -> Edit:
    """Add a directive behind the last one, or behind the first line of a script without any.

    Raises:
        ValueError: The value would break out of the directive.
    """
    text = f"#SBATCH {directive(name, value)}".encode()
    start, end = script.line_span(script.lines[-1].start if script.lines else 0)
    last = script.data[start:end]
    newline = b"\r\n" if last.endswith(b"\r\n") or (not last.endswith(b"\n") and b"\r\n" in script.data) else b"\n"
    return Edit(end, end, text + newline if last.endswith(b"\n") else newline + text)
