"""Make options of the words of directives, as getopt does for sbatch, from the option table of each generation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from srunbook.script._errors import ScriptError
from srunbook.script._words import Word

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
