"""Check a metrics.csv, one line for each epoch, against its own header. No line is kept."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from srunbook._text import LONGEST_LINE, read_lines
from srunbook.verify._report import Check, failed, passed

METRICS = "metrics.csv"
AGAIN = "did the job end early, or two jobs write into one folder? Look at the log of rank 0"
DIVERGED = "training diverged: look at the losses before it, lower the learning rate, check the data"


class MetricsError(ValueError):
    """The table is not as it should be; the message says where, `hint` what to do."""

    def __init__(self, message: str, hint: str = AGAIN) -> None:
        super().__init__(message)
        self.hint = hint


def check_metrics(path: Path, asked: int | None) -> Check:
    """Check that a table holds numbers, all of them finite, and each epoch once.

    Columns whose first value is no number are left out, and so are empty cells.

    Args:
        path: The file.
        asked: How many epochs the ranks were asked for, or None if they do not say.
    """
    try:
        rows = _rows(path)
        table = _Table(next(rows, (0, [""]))[1])
        for line, cells in rows:
            table.add(line, cells)
        if not table.lines:
            raise MetricsError("it holds no numbers")
        if asked and table.epoch is not None and table.epoch not in (asked, asked - 1 + table.first):
            raise MetricsError(f"the last epoch is {table.epoch}; {asked} epochs were asked for")
    except MetricsError as error:
        return failed(METRICS, f"{path}: {error}", error.hint)
    except (OSError, csv.Error) as error:
        return failed(METRICS, f"{path}: {error}", AGAIN)
    ends = ", ".join(f"{name} {value:g}" for name, value in list(table.last.items())[:12])
    which = f"{table.lines} lines" if table.epoch is None else f"epochs {table.first} to {table.epoch}"
    return passed(METRICS, f"{path}: {which}{f'; at the end {ends}' if ends else ''}")


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(path), start=1):
        if len(line) > LONGEST_LINE:
            raise MetricsError(f"line {number} is longer than {LONGEST_LINE} bytes")
        text = line.decode("utf-8", errors="replace")
        if text.strip():
            cells = text.split(",") if '"' not in text else next(csv.reader([text]))
            yield number, [cell.strip() for cell in cells]


class _Table:
    """What the lines of a table amount to.

    Args:
        columns: Their names.
    """

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self.numeric: dict[str, bool] = {}
        self.last: dict[str, float] = {}
        self.first = 0
        self.epoch: int | None = None
        self.lines = self.stride = 0

    def add(self, line: int, cells: list[str]) -> None:
        """Take a line."""
        self.lines += 1
        if len(cells) != len(self.columns):
            raise MetricsError(
                f"line {line} has {len(cells)} cells and the header {len(self.columns)}: was it cut off?"
            )
        for name, cell in zip(self.columns, cells, strict=True):
            if name == "epoch" and cell.isdecimal():
                self._count(line, int(cell[:18]))
            elif cell and self.numeric.get(name, True):
                self._take(line, name, cell)

    def _take(self, line: int, name: str, cell: str) -> None:
        try:
            value = float(cell)
        except ValueError:
            if name in self.numeric:
                raise MetricsError(f"line {line}: {name} is {cell[:40]!r}, which is not a number") from None
            self.numeric[name] = False
            return
        if not math.isfinite(value):
            raise MetricsError(f"line {line}: {name} is {cell[:40]}", DIVERGED)
        self.numeric[name] = True
        self.last[name] = value

    def _count(self, line: int, epoch: int) -> None:
        before, self.epoch = self.epoch, epoch
        if before is None:
            self.first = epoch
        elif "step" not in self.columns:  # otherwise an epoch may have several lines
            if epoch <= before:
                raise MetricsError(f"line {line}: epoch {epoch} comes after epoch {before}")
            self.stride = self.stride or epoch - before
            if epoch != before + self.stride:
                raise MetricsError(f"line {line}: epoch {before + self.stride} is missing")
