"""Rank lines: the line that every rank prints when it starts and when it ends.

A program can print each of them with an f-string, without a library::

    print(f"rank {rank}/{world_size} start host={host} device={device}", flush=True)
    print(f"rank {rank}/{world_size} end steps={step} loss={loss:.4f}", flush=True)

This module reads them, with the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

__all__ = ["RankEnd", "RankLineError", "RankStart", "parse_rank_lines"]

GREETING = "Expected number of connected"
"""A piece of gloo's greeting that begins with a letter. Another thread may print it right behind a value."""

MARK = re.compile(
    r"rank (-?\d+)/(\d+) (start|end)"
    rf"(?=[ \t]+[A-Za-z_][\w.-]*=|[ \t]*(?:$|[\r\n\[]|rank \d|{GREETING}))",
    re.ASCII,
)
"""How a rank line begins. A field follows, or nothing, or another thread's output: `rank 1/2 end of data` is prose."""

FIRST = re.compile(rf"(?<![A-Za-z_]){MARK.pattern}", re.ASCII)
"""The same for the first of a line, which is no part of another word, as in `shrank 3/8 start`."""

FIELD = re.compile(r"[ \t]+([A-Za-z_][\w.-]*)=([^\s\[\](){}<>\"'|\\\x00-\x1f\x7f]*)", re.ASCII)
"""One field, as in logfmt, but without quotes: values hold no spaces."""

COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Changes a colour or clears a line of the terminal."""


class RankLineError(ValueError):
    """A rank line has an impossible rank or value, which the message shows."""


@dataclass(frozen=True)
class RankStart:
    """Where and how a rank started. A field that is missing in the line is None.

    Args:
        rank: Its rank, from 0.
        world_size: Number of ranks in its world.
        host: Name of its node.
        local_rank: Its rank among those on its node, from 0.
        device: Its device, such as `cpu` or `cuda:1`.
        backend: Backend of its collectives: `gloo`, `nccl` or `none`.
        framework: Name and version, as in `torch-2.13.0`.
        job: Slurm's job id.
        pid: Its process id on that node.
        epochs: Number of epochs that it was asked to train.
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
    """How a rank ended. A field that is missing in the line is None.

    Args:
        rank: Its rank, from 0.
        world_size: Number of ranks in its world.
        steps: Number of optimizer steps (or collectives) it made.
        loss: Its last loss.
        params: First digits of the SHA-256 of its parameters: usually 12; 8 to 64 are accepted.
    """

    rank: int
    world_size: int
    steps: int | None = None
    loss: float | None = None
    params: str | None = None


def parse_rank_lines(lines: Iterable[str]) -> list[RankStart | RankEnd]:
    """Find the rank lines in the output of a job.

    A rank line begins with `rank R/N start` or `rank R/N end`; its fields are optional and come in any order.
    Unknown fields are skipped, and an empty value, or the `None` of an f-string, counts as missing. Other output may
    share the line: a launcher's label or a library's greeting before it, colours around it, a progress bar or a second
    rank line after it. The first word that is not a field ends a rank line.

    Args:
        lines: Lines of output, with or without line ends.

    Returns:
        The rank lines, in the order of the output.

    Raises:
        RankLineError: A rank is outside its world, a field comes twice, or a known field has an impossible value.

    >>> parse_rank_lines(["[0] rank 0/2 end steps=440 note=fine", "rank 1 has ended"])
    [RankEnd(rank=0, world_size=2, steps=440, loss=None, params=None)]
    >>> parse_rank_lines(["rank 2/2 start"])
    Traceback (most recent call last):
    ...
    srunbook.ranklog.RankLineError: rank 2/2 start: a world of 2 has no rank 2; ranks count from 0
    """
    return [_parse(*pairs) for line in lines for pairs in _split(line)]


def _split(line: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the beginning of each rank line in one line of output, and the text up to the next one."""
    line = COLOUR.sub("", line)
    first = FIRST.search(line)
    marks = [*MARK.finditer(line, first.start())] if first else []
    for mark, following in zip_longest(marks, marks[1:]):
        text = line[mark.end() : following.start() if following else None]
        yield mark, text.partition(GREETING)[0]


def _parse(mark: re.Match[str], text: str) -> RankStart | RankEnd:
    rank, world_size, (kind, parsers) = int(mark[1]), int(mark[2]), KINDS[mark[3]]
    if not 0 <= rank < world_size:
        raise RankLineError(f"{mark[0]}: a world of {world_size} has no rank {rank}; ranks count from 0")
    values: dict[str, Any] = {}
    place = 0
    while field := FIELD.match(text, place):
        name, value = field.groups()
        place = field.end()
        if name in values:
            raise RankLineError(f"{mark[0]}: {name}= comes twice")
        if name in parsers:
            try:
                values[name] = None if value in ("", "None") else parsers[name](value)
            except ValueError as error:
                raise RankLineError(f"{mark[0]}: {name}={value[:60]}: {error}") from None
    return kind(rank, world_size, **values)


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number") from None


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{8,64}", text):
        raise ValueError("expected the first 8 to 64 hexadecimal digits of a SHA-256")
    return text


KINDS: dict[str, tuple[type[RankStart] | type[RankEnd], dict[str, Callable[[str], Any]]]] = {
    "start": (
        RankStart,
        {
            **dict.fromkeys(("host", "device", "backend", "framework", "job"), str),
            **dict.fromkeys(("local_rank", "pid", "epochs"), _count),
        },
    ),
    "end": (RankEnd, {"steps": _count, "loss": _number, "params": _digest}),
}
"""The class of each kind of rank line, and what reads the text of each field."""
