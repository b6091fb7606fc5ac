"""Parse rank lines: `rank 3/8 start host=node2 local_rank=1` and `rank 3/8 end steps=220 loss=0.0144`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

NUMBER = r"[-+]?\d[\d_.eE+*-]*+(?<=\d)"
"""Whatever is meant as a number: what a rank cannot be, as in `rank -1/2 start`, is refused and not passed over."""

MARK = re.compile(
    rf"rank ({NUMBER})/({NUMBER}) (start|end)"
    r"(?=[ \t]+[A-Za-z_][A-Za-z0-9_.-]*=|[ \t]*(?:$|[\r\n\[]|rank \d|Expected number of connected))"
)
"""How a rank line begins. A field follows, or nothing, or another thread's output: `rank 1/2 end of data` is prose."""

FIELD = re.compile(r"[ \t]+([A-Za-z_][\w.-]*)=([^\s\[\](){}<>\"'|\\\x00-\x1f\x7f]*)", re.ASCII)
"""One field, as in logfmt, but without quotes: values hold no spaces."""

FIRST = re.compile(rf"(?<![A-Za-z_]){MARK.pattern}")
"""The same for the first of a line, which is no part of another word, as in `shrank 3/8 start`."""

SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""A sequence by which a terminal changes colour, clears a line or moves its cursor."""

HARMLESS = re.compile(r"\x1b\[(?:[0-9;:]*m|0?K)")
"""One that changes colour, or clears what follows; any other may hide or overwrite what a line says."""

CONTROL = re.compile(r"[ \t]*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

GREETING = "Expected number of connected"
"""A piece of gloo's greeting that begins with a letter; all others end a value by themselves."""

LONGEST_WORD = 256
"""Characters of a value; no host name is longer than 253."""


class RankLineError(ValueError):
    """A rank line holds an impossible rank or value; the message names it."""


@dataclass(frozen=True)
class RankStart:
    """Where and as what a rank started. A field that the line does not name is None.

    Args:
        rank: Its rank, from 0.
        world_size: Number of ranks in its world.
        host: Name of its node.
        local_rank: Its rank among those on its node, from 0.
        device: What computes: `cpu`, `cuda:1`.
        backend: What carries the collectives: `gloo`, `nccl`, `none`.
        framework: Name and version, as in `torch-2.13.0`.
        job: Slurm's job id.
        pid: Its process id on that node.
        epochs: Number of epochs that it was asked for.
    """

    rank: int
    world_size: int
    host: str | None = None
    local_rank: int | None = None
    device: str | None = None
    backend: str | None = None
    framework: str | None = None
    job: str | None = None
    pid: int | None = None
    epochs: int | None = None


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended. A field that the line does not name is None.

    Args:
        rank: Its rank, from 0.
        world_size: Number of ranks in its world.
        steps: Number of optimizer steps (or collectives) it made.
        loss: Its last loss.
        params: First digits of the SHA-256 of its parameters: 12 by custom, 8 to 64 are read.
    """

    rank: int
    world_size: int
    steps: int | None = None
    loss: float | None = None
    params: str | None = None


def parse_rank_lines(lines: Iterable[str]) -> list[RankStart | RankEnd]:
    """Find the rank lines in the output of a job.

    A rank line begins with `rank R/N start` or `rank R/N end`; its fields are optional and come in any order.
    Unknown fields are skipped, and an empty value, or the `None` of an f-string, says nothing.
    Other output may share the line: a launcher's label or a library's greeting before it, colours around it, a
    progress bar or a second rank line behind it. The first word that is not a field ends a rank line.

    Args:
        lines: Lines of output, with or without line ends.

    Returns:
        The rank lines, in the order of the output.

    Raises:
        RankLineError: A rank lies outside its world or is no whole number, a field comes twice, a known field has an
            impossible value, or a control character other than a colour follows a value.

    >>> parse_rank_lines(["[0] rank 0/2 end steps=440 note=fine", "rank 1 has ended"])
    [RankEnd(rank=0, world_size=2, steps=440, loss=None, params=None)]
    >>> parse_rank_lines(["rank 2/2 start"])
    Traceback (most recent call last):
    ...
    srunbook.ranklog._lines.RankLineError: rank 2/2 start: a world of 2 has no rank 2; ranks count from 0
    """
    return [_parse(*found) for line in lines for found in _split(line)]


def _split(line: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the beginning of each rank line in one line of output, and the text up to the next one."""
    line = SEQUENCE.sub(lambda found: "" if HARMLESS.fullmatch(found[0]) else "\x1b", line)
    first = FIRST.search(line)
    marks = list(MARK.finditer(line, first.start())) if first else []
    for mark, following in zip_longest(marks, marks[1:]):
        text = line[mark.end() : following.start() if following else None]
        yield mark, text.partition(GREETING)[0]


def _parse(mark: re.Match[str], text: str) -> RankStart | RankEnd:
    if not all(re.fullmatch(r"[0-9]{1,18}", number) for number in mark.group(1, 2)):
        raise RankLineError(f"{mark[0][:80]}: expected whole numbers of at most 18 digits, as in rank 0/2")
    rank, world_size, (kind, parsers) = int(mark[1]), int(mark[2]), KINDS[mark[3]]
    if rank >= world_size:
        raise RankLineError(f"{mark[0]}: a world of {world_size} has no rank {rank}; ranks count from 0")
    values: dict[str, Any] = {}
    place = 0
    while field := FIELD.match(text, place):
        name, value = field.groups()
        place = field.end()
        if name not in parsers:
            continue
        if name in values:
            raise RankLineError(f"{mark[0]}: {name}= comes twice")
        try:
            values[name] = None if value in ("", "None") else parsers[name](value)
        except ValueError as error:
            raise RankLineError(f"{mark[0]}: {name}={value[:60]}: {error}") from None
    if CONTROL.match(text, place):
        raise RankLineError(f"{mark[0]}: a control character follows, which may overwrite what the line shows")
    return kind(rank, world_size, **values)


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def _word(text: str) -> str:
    if len(text) > LONGEST_WORD:
        raise ValueError(f"expected at most {LONGEST_WORD} characters")
    return text


def _number(text: str) -> float:
    if not re.fullmatch(r"[+-]?(\d{1,400}(\.\d{0,400})?([eE][+-]?\d{1,9})?|nan|inf)", text, re.ASCII):
        raise ValueError("expected a number")
    return float(text)


def _digest(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{8,64}", text):
        raise ValueError("expected the first 8 to 64 hexadecimal digits of a SHA-256")
    return text


KINDS: dict[str, tuple[type[RankStart] | type[RankEnd], dict[str, Callable[[str], Any]]]] = {
    "start": (
        RankStart,
        {
            "host": _word,
            "local_rank": _count,
            "device": _word,
            "backend": _word,
            "framework": _word,
            "job": _word,
            "pid": _count,
            "epochs": _count,
        },
    ),
    "end": (RankEnd, {"steps": _count, "loss": _number, "params": _digest}),
}
"""The class of each kind of rank line, and what reads the text of each field."""
