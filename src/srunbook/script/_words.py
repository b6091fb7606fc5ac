r"""Split the directives of a job script into words, by the rules of sbatch, which are not those of the shell.

sbatch reads lines from the top and stops at the first command. A directive begins with `#SBATCH`, or with `#SLURM`, in
the first column. Words end at white space; both kinds of quotes group, a backslash takes the next character as it is
(within either kind of quotes, too) and does not join lines, and a `#` outside of quotes ends the line wherever it is.
Generations differ in one thing: a backslash before white space, outside of quotes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from srunbook.script._errors import ScriptError

SPACE = b" \t\n\v\f\r"
"""What sbatch takes for white space."""

SPACE_ENDS_ANY_WORD = ("22.05",)
"""Generations in which white space ends a word outside of quotes even where a backslash comes before it."""

MAGIC = (b"#SBATCH", b"#SLURM")
"""How a directive begins."""


@dataclass(frozen=True)
class Word:
    """A word of a directive.

    Args:
        text: What sbatch makes of it, without quotes; bytes that are not UTF-8 are surrogates.
        start: Offset of its first byte in the script.
        end: Offset behind its last byte.
        line: Its line, from 1.
        plain: Whether the script has it exactly as `text`, without quotes or backslashes.
    """

    text: str
    start: int
    end: int
    line: int
    plain: bool


@dataclass(frozen=True)
class DirectiveLine:
    """A line that sbatch reads.

    Args:
        words: Its words.
        start: Offset of its first byte.
        end: Offset of its end of line, or of the end of the script.
        number: The line, from 1.
    """

    words: tuple[Word, ...]
    start: int
    end: int
    number: int


def directive_lines(data: bytes, generation: str | None = None) -> Iterator[DirectiveLine]:
    """Read the directives up to the first command.

    Args:
        data: The script.
        generation: The generation of Slurm whose rules count; by default, a directive that generations read in
            different ways is refused.

    Raises:
        ScriptError: A quote is not closed, a word begins with a colon, or the job has several components.
    """
    start, number = 0, 0
    while start < len(data):
        number += 1
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end]
        magic = next((magic for magic in MAGIC if line.startswith(magic)), None)
        if magic:
            found = DirectiveLine(tuple(words(data, start + len(magic), end, number, generation)), start, end, number)
            if found.words and found.words[0].text.lower() in ("hetjob", "packjob"):
                raise ScriptError(number, "a job of several components (hetjob). Only jobs of one are understood")
            yield found
        elif (rest := line.lstrip(SPACE)) and not rest.startswith(b"#"):
            return
        start = end + 1


def words(data: bytes, place: int, end: int, number: int, generation: str | None = None) -> Iterator[Word]:
    """Split the rest of a directive into words."""
    while True:
        while place < end and data[place] in SPACE:
            place += 1
        if data[place:end].startswith(b":"):
            raise ScriptError(number, "a word begins with ':', which sbatch refuses. Put it into quotes")
        text, behind = word(data, place, end, number, generation)
        if text is None:  # nothing is left, a comment begins, or the word is empty: sbatch reads no further
            return
        yield Word(text.decode("utf-8", "surrogateescape"), place, behind, number, data[place:behind] == text)
        place = behind


def word(data: bytes, place: int, end: int, number: int, generation: str | None) -> tuple[bytes | None, int]:
    """Read one word; return it, or None for a word without any character, and the offset behind it."""
    text = bytearray()
    quote = 0
    escaped = False
    while place < end:
        letter = data[place]
        if not quote and letter in SPACE and ends_word(escaped, number, generation):
            break
        if escaped:
            escaped = False
            text.append(letter)
        elif letter == ord("\\"):
            escaped = True
        elif quote and letter == quote:
            quote = 0
        elif not quote and letter in b"\"'":
            quote = letter
        elif not quote and letter == ord("#"):
            break
        else:
            text.append(letter)
        place += 1
    if quote:
        raise ScriptError(number, f"a quote {chr(quote)} is not closed, which sbatch refuses. Close it")
    return (bytes(text) or None, place)


def ends_word(escaped: bool, number: int, generation: str | None) -> bool:
    """Tell whether white space outside of quotes ends a word."""
    if escaped and generation is None:
        raise ScriptError(
            number, "Slurm 22.05 and later ones read a backslash before a space in different ways. Use quotes"
        )
    return not escaped or generation in SPACE_ENDS_ANY_WORD
