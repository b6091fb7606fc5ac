"""What the log of a rank, or of a whole job, tells: run records and the lines of epochs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srunbook.formats import EndRecord, FormatError, StartRecord, parse_records

EPOCH = re.compile(r"\bepoch (\d{1,9})/(\d{1,9})  +(\S.*)")
"""A line of rank 0: `epoch 3/10  train_loss 0.123456  val_loss 0.123456  val_mae 3.21  val_rmse 4.56`."""

PAIR = re.compile(r"(\w+) (-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf))(?=\s|$)")


@dataclass(frozen=True)
class Log:
    """One log.

    Args:
        name: Its path, as messages show it.
        rank: The rank in its name, or None for the log of a whole job.
        records: The run records in it, in order.
        damaged: What is wrong with each line that announces a record and holds none.
        epochs: What the line of each epoch says, as text; the last line where an epoch was trained again.
        asked: Number of epochs that these lines count to, or None without such a line.
    """

    name: str
    rank: int | None
    records: tuple[StartRecord | EndRecord, ...] = ()
    damaged: tuple[str, ...] = ()
    epochs: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    asked: int | None = None


@dataclass(frozen=True)
class RankRun:
    """A rank from its start to its end.

    Args:
        start: Its start record.
        end: Its end record, or None where it has none.
        log: Name of the log that holds them.
    """

    start: StartRecord
    end: EndRecord | None
    log: str


def parse_log(name: str, rank: int | None, lines: Iterable[str]) -> Log:
    """Reads the lines of a log.

    Args:
        name: Its path, as messages show it.
        rank: The rank in its name, or None for the log of a whole job.
        lines: Its lines, with or without a launcher's label before each.
    """
    records: list[StartRecord | EndRecord] = []
    damaged: list[str] = []
    epochs: dict[int, dict[str, str]] = {}
    asked = None
    for line in lines:
        try:
            records += parse_records([line])
        except FormatError as error:
            damaged.append(str(error))
        match = EPOCH.search(line)
        if match:
            asked = int(match[2])
            epochs[int(match[1])] = dict(PAIR.findall(match[3]))
    return Log(name, rank, tuple(records), tuple(damaged), epochs, asked)


def read_log(path: Path, name: str, rank: int | None) -> Log:
    """Reads a log from a file."""
    with path.open(encoding="utf-8", errors="replace") as stream:
        return parse_log(name, rank, stream)


def rank_runs(logs: Iterable[Log], attempts: int = 1) -> list[RankRun]:
    """Pairs the start and end records of each rank, and leaves out attempts that were begun anew.

    A launcher may start a rank again: then it has several start records in one log and at most one end record, and
    the last start counts. So it does where Slurm requeued the job. Two processes that both ended as the same rank in
    one attempt both stay.

    Args:
        logs: The logs.
        attempts: How often Slurm started the job.
    """
    return [run for log in logs for run in _runs(log, attempts)]


def _runs(log: Log, attempts: int) -> list[RankRun]:
    by_rank: dict[int, list[RankRun]] = {}
    for record in log.records:
        runs = by_rank.setdefault(record.rank, [])
        if isinstance(record, StartRecord):
            runs.append(RankRun(record, None, log.name))
            continue
        place = next((index for index in reversed(range(len(runs))) if runs[index].end is None), None)
        if place is not None:
            runs[place] = RankRun(runs[place].start, record, log.name)
    return [run for runs in by_rank.values() for run in _current(runs, attempts)]


def _current(runs: list[RankRun], attempts: int) -> list[RankRun]:
    ended = [run for run in runs if run.end is not None]
    return ended if len(ended) > 1 and len(runs) > attempts else runs[-1:]
