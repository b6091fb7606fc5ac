"""Read the log of a rank, or of a whole job: rank lines and the lines of epochs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from srunbook._text import read_lines
from srunbook.ranklog import RankEnd, RankLineError, RankStart, parse_rank_lines

EPOCH = re.compile(r"\bepoch (\d{1,9})/(\d{1,9})  +(\S.*)", re.ASCII)
"""A line of rank 0: `epoch 3/10  train_loss 0.123456  val_loss 0.123456  val_mae 3.21  val_rmse 4.56`."""

PAIR = re.compile(r"(?<!\w)(\w{1,100}+) (-?(?:\d++(?:\.\d++)?(?:e[+-]?\d++)?|nan|inf))(?=\s|$)", re.ASCII)
"""A number with its name. No part of it is read twice, however long a word is."""

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")

MOST_RANK_LINES = 50_000
"""Rank lines of a log that are kept; no job that prints more could be judged in little memory."""

MOST_EPOCHS = 2**25
"""Bytes that the lines of epochs of a log may take; beyond these they are counted, and not kept."""

ENTRY = 300
"""Bytes that an epoch takes beside its text."""

SHOWN = 8
"""Damaged lines that are kept."""


@dataclass(frozen=True)
class Log:
    """One log.

    Args:
        name: Its path, as messages show it.
        rank: The rank in its name, or None for the log of a whole job.
        rank_lines: The rank lines in it, in order.
        damaged: What is wrong with the first lines that begin as a rank line and cannot be read.
        epochs: The numbers that the line of each epoch names, as text; the last line where one was trained again.
        dropped: Number of lines of epochs that were too many to be kept.
        asked: Number of epochs that these lines count to, or None without such a line.
        contradicted: The first epoch of which rank 0 said two different things without starting between, or None.
    """

    name: str
    rank: int | None
    rank_lines: tuple[RankStart | RankEnd, ...] = ()
    damaged: tuple[str, ...] = ()
    epochs: Mapping[int, str] = field(default_factory=dict)
    dropped: int = 0
    asked: int | None = None
    contradicted: int | None = None

    def numbers(self, epoch: int) -> dict[str, str]:
        """Return what the line of an epoch says, by name; nothing without one."""
        return dict(PAIR.findall(self.epochs.get(epoch, "")))


def parse_log(name: str, rank: int | None, lines: Iterable[str]) -> Log:
    """Read the lines of a log.

    Args:
        name: Its path, as messages show it.
        rank: The rank in its name, or None for the log of a whole job.
        lines: Its lines, with or without a launcher's label before each.
    """
    rank_lines: list[RankStart | RankEnd] = []
    damaged: list[str] = []
    epochs: dict[int, str] = {}
    starts: dict[int, int] = {}
    asked, contradicted, taken, dropped, begun = None, None, 0, 0, 0
    for line in lines:
        try:
            found = parse_rank_lines([line]) if "rank" in line else []
            rank_lines += found
            begun += sum(isinstance(one, RankStart) and one.rank == 0 for one in found)
        except RankLineError as error:
            damaged += [str(error)] if len(damaged) < SHOWN else []
        if len(rank_lines) > MOST_RANK_LINES:
            damaged.insert(0, f"more than {MOST_RANK_LINES} rank lines, so the rest was not read")
            break
        match = EPOCH.search(line) if "epoch" in line else None
        if match and taken > MOST_EPOCHS:
            dropped += 1
        elif match:
            asked, epoch = int(match[2]), int(match[1])
            known = epochs.pop(epoch, None)
            epochs[epoch] = " ".join(pair[0] for pair in PAIR.finditer(COLOUR.sub("", match[3])))
            if contradicted is None and known not in (None, epochs[epoch]) and starts[epoch] == begun:
                contradicted = epoch
            starts[epoch] = begun
            taken += len(epochs[epoch]) - (-ENTRY if known is None else len(known))
    return Log(name, rank, tuple(rank_lines[:MOST_RANK_LINES]), tuple(damaged), epochs, dropped, asked, contradicted)


def read_log(path: Path, name: str, rank: int | None) -> Log:
    """Read a log from a file.

    Raises:
        OSError: It cannot be read, or is not a regular file.
    """
    telling = (line for line in read_lines(path) if b"rank " in line or b"epoch " in line)
    return parse_log(name, rank, (line.decode("utf-8", errors="replace") for line in telling))
