"""Read the log of a rank, or of a whole job: rank lines and the lines of epochs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srunbook.ranklog import RankEnd, RankLineError, RankStart, parse_rank_lines

EPOCH = re.compile(r"\bepoch (\d{1,9})/(\d{1,9})  +(\S.*)")
"""A line of rank 0: `epoch 3/10  train_loss 0.123456  val_loss 0.123456  val_mae 3.21  val_rmse 4.56`."""

PAIR = re.compile(r"(\w+) (-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf))(?=\s|$)")


@dataclass(frozen=True)
class Log:
    """One log.

    Args:
        name: Its path, as messages show it.
        rank: The rank in its name, or None for the log of a whole job.
        rank_lines: The rank lines in it, in order.
        damaged: What is wrong with each line that begins as a rank line and cannot be read.
        epochs: What the line of each epoch says, as text; the last line where an epoch was trained again.
        asked: Number of epochs that these lines count to, or None without such a line.
    """

    name: str
    rank: int | None
    rank_lines: tuple[RankStart | RankEnd, ...] = ()
    damaged: tuple[str, ...] = ()
    epochs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    asked: int | None = None


@dataclass(frozen=True)
class RankRun:
    """A rank from its start to its end.

    Args:
        start: Its start line.
        end: Its end line, or None without one.
        log: Name of the log that holds them.
    """

    start: RankStart
    end: RankEnd | None
    log: str


def parse_log(name: str, rank: int | None, lines: Iterable[str]) -> Log:
    """Read the lines of a log.

    Args:
        name: Its path, as messages show it.
        rank: The rank in its name, or None for the log of a whole job.
        lines: Its lines, with or without a launcher's label before each.
    """
    rank_lines: list[RankStart | RankEnd] = []
    damaged: list[str] = []
    epochs: dict[int, dict[str, str]] = {}
    asked = None
    for line in lines:
        try:
            rank_lines += parse_rank_lines([line])
        except RankLineError as error:
            damaged.append(str(error))
        match = EPOCH.search(line)
        if match:
            asked = int(match[2])
            epochs[int(match[1])] = dict(PAIR.findall(match[3]))
    return Log(name, rank, tuple(rank_lines), tuple(damaged), epochs, asked)


def read_log(path: Path, name: str, rank: int | None) -> Log:
    """Read a log from a file."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        return parse_log(name, rank, stream)


def rank_runs(logs: Iterable[Log], attempts: int = 1) -> list[RankRun]:
    """Pair the start and end lines of each rank, and leave out attempts that were begun anew.

    A launcher may start a rank again: its log then has several start lines and at most one end line, and the last
    start counts. The same holds after Slurm requeued the job. Two processes that both ended as the same rank in one
    attempt both stay.

    Args:
        logs: The logs.
        attempts: How often Slurm started the job.
    """
    return [run for log in logs for run in _runs(log, attempts)]


def _runs(log: Log, attempts: int) -> list[RankRun]:
    by_rank: dict[int, list[RankRun]] = {}
    for line in log.rank_lines:
        runs = by_rank.setdefault(line.rank, [])
        if isinstance(line, RankStart):
            runs.append(RankRun(line, None, log.name))
            continue
        place = next((index for index in reversed(range(len(runs))) if runs[index].end is None), None)
        if place is not None:
            runs[place] = RankRun(runs[place].start, line, log.name)
    return [run for runs in by_rank.values() for run in _current(runs, attempts)]


def _current(runs: list[RankRun], attempts: int) -> list[RankRun]:
    ended = [run for run in runs if run.end is not None]
    return ended if len(ended) > 1 and len(runs) > attempts else runs[-1:]
