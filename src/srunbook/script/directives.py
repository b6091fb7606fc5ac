r"""Read the directives of a job script as sbatch does: lines, words, and the options that they make.

sbatch reads lines from the top and stops at the first command. A directive begins with `#SBATCH`, or with `#SLURM`, in
the first column. Words end at white space, by rules that are not those of the shell: both kinds of quotes group, a
backslash takes the next character as it is (within either kind of quotes, too) and does not join lines, and a `#`
outside of quotes ends the line wherever it is. Generations differ in one thing: a backslash before white space, outside
of quotes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal


class ScriptError(ValueError):
    """A job script says something that sbatch refuses, or that cannot be understood.

    Args:
        line: The line, from 1.
        problem: What was found, what was expected, and what to do.
    """

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        self.problem = problem
        super().__init__(f"line {line}: {problem}")


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


GENERATIONS = ("22.05", "24.11", "26.05")
"""Generations of Slurm whose tables were recorded."""

Argument = Literal["none", "optional", "required"]


@dataclass(frozen=True)
class Option:
    """An option of a job script.

    Args:
        name: Its long name, without dashes, also where the script has the short or an abbreviated one.
        value: Its argument; None without one.
        word: The word that names it.
        value_word: The word after it that is its argument; None where the argument is in the same word or missing.
        at: Where the argument begins in the text of `word`; None where it is in a word of its own or missing.
        alone: Whether `word` names no other option, as `-Hp` does.
    """

    name: str
    value: str | None
    word: Word
    value_word: Word | None
    at: int | None
    alone: bool

    @property
    def line(self) -> int:
        """Line of the word that names it."""
        return self.word.line


@dataclass(frozen=True)
class Table:
    """Options that sbatch knows.

    Args:
        arguments: By long name, whether an argument follows.
        short: Long name by letter.
    """

    arguments: dict[str, Argument]
    short: dict[str, str]

    def complete(self, name: str) -> str | None:
        """Return the long name that somebody abbreviated; None if there is none or more than one."""
        if name in self.arguments:
            return name
        found = [known for known in self.arguments if known.startswith(name)]
        return found[0] if len(found) == 1 else None


@cache
def table(generation: str | None = None) -> Table:
    """Return the option table of a generation of Slurm, as its sbatch tells it.

    Args:
        generation: One of `GENERATIONS`; without it, the options of all, and where they differ those of the newest.

    Raises:
        KeyError: No such generation was recorded.

    >>> table("22.05").short["p"], table().arguments["exclusive"]
    ('partition', 'optional')
    """
    recorded = json.loads(files("srunbook.script").joinpath("options.json").read_text(encoding="utf-8"))
    arguments: dict[str, Argument] = {}
    short: dict[str, str] = {}
    for one in [generation] if generation else GENERATIONS:
        arguments |= recorded[one]["arguments"]
        short |= recorded[one]["short"]
    return Table(arguments, short)


def options(words: Sequence[Word], known: Table) -> Iterator[Option]:
    """Read words as sbatch does: one sequence, whatever lines they are on.

    Raises:
        ScriptError: A word is no option, or an option lacks its argument.
    """
    left = iter(words)
    for word in left:
        if word.text.startswith("--") and len(word.text) > 2:
            yield _long(word, left, known)
        elif word.text.startswith("-") and word.text not in ("-", "--"):
            yield from _short(word, left, known)
        else:
            raise ScriptError(
                word.line, f"{word.text!r} is not an option, and sbatch refuses it. Write --option=value, or quote it"
            )


def _long(word: Word, left: Iterator[Word], known: Table) -> Option:
    given, sign, value = word.text[2:].partition("=")
    name = known.complete(given) or given
    argument = known.arguments.get(name, "optional")
    if sign:
        return Option(name, value, word, None, len(given) + 3, True)
    if argument == "required":
        follows = _argument(word, name, left)
        return Option(name, follows.text, word, follows, None, True)
    return Option(name, None, word, None, None, True)


def _short(word: Word, left: Iterator[Word], known: Table) -> Iterator[Option]:
    alone = True
    for place, letter in enumerate(word.text[1:], start=1):
        name = known.short.get(letter, letter)
        argument = known.arguments.get(name, "none")
        rest = word.text[place + 1 :]
        if argument == "none" or (argument == "optional" and not rest):
            alone = alone and not rest
            yield Option(name, None, word, None, None, alone)
        elif rest:
            yield Option(name, rest, word, None, place + 1, alone)
            return
        else:
            follows = _argument(word, name, left)
            yield Option(name, follows.text, word, follows, None, alone)
            return


def _argument(word: Word, name: str, left: Iterator[Word]) -> Word:
    follows = next(left, None)
    if follows is None:
        raise ScriptError(word.line, f"--{name} has no value. Write --{name}=VALUE")
    return follows


@dataclass(frozen=True)
class Script:
    """A job script.

    Args:
        data: Its bytes.
        lines: The lines with directives, up to the first command.
        options: The options in them, in their order; where one is given twice, sbatch takes the later.
    """

    data: bytes
    lines: tuple[DirectiveLine, ...]
    options: tuple[Option, ...]

    def last(self, *names: str) -> Option | None:
        """Return the option that counts: the last of these names."""
        return next((option for option in reversed(self.options) if option.name in names), None)

    def line_at(self, offset: int) -> int:
        """Return the line of an offset, from 1."""
        return self.data.count(b"\n", 0, offset) + 1

    def line_span(self, offset: int) -> tuple[int, int]:
        """Return where the line of an offset begins, and where the next one does."""
        end = self.data.find(b"\n", offset)
        return self.data.rfind(b"\n", 0, offset) + 1, len(self.data) if end < 0 else end + 1


def parse(data: bytes, generation: str | None = None) -> Script:
    """Read a job script as sbatch does.

    Args:
        data: Its bytes. Ends of lines may be those of DOS, although sbatch refuses them.
        generation: The generation of Slurm to read it as; by default the options are those of all recorded ones, and
            what they read in different ways is refused.

    Raises:
        ScriptError: It does not begin with `#!`, has a NUL, or a directive that sbatch refuses.
    """
    if not data.startswith(b"#!"):
        raise ScriptError(1, "a job script begins with #! and a shell, as in #!/bin/bash. Add that line")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise ScriptError(line, "a NUL character, which Slurm refuses. Save the script as text")
    lines = tuple(directive_lines(data, generation))
    found = options([word for line in lines for word in line.words], table(generation))
    return Script(data, lines, tuple(found))
