"""The file metrics.csv: one line for each epoch."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

COLUMNS = (
    "epoch",
    "train_loss",
    "val_loss",
    "val_mae",
    "val_rmse",
    "epoch_time_sec",
    "throughput_samples_per_sec",
    "data_load_time_sec",
    "compute_time_sec",
    "gpu_util_avg",
    "cpu_util_avg",
)
"""Its columns, in this order."""

MAY_BE_EMPTY = ("gpu_util_avg", "cpu_util_avg")
"""Columns without a value where nothing was monitored."""

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Epoch:
    """One line.

    Args:
        number: The epoch, from 1.
        values: Its numbers by column, without those of empty cells.
    """

    number: int
    values: dict[str, float]


class MetricsError(ValueError):
    """The file has another form; the message says where."""


def parse_metrics(text: str) -> list[Epoch]:
    """Reads metrics.csv.

    Args:
        text: The file.

    Returns:
        The epochs, in the order of the file.

    Raises:
        MetricsError: The columns are others, or a cell is no number.
    """
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except csv.Error as error:
        raise MetricsError(f"this is no CSV: {error}") from None
    header = [cell.strip() for cell in rows[0]] if rows else []
    if tuple(header) != COLUMNS:
        odd = [name for name in COLUMNS if name not in header] or [name for name in header if name not in COLUMNS]
        what = f"column {odd[0]!r} is {'missing' if odd[0] in COLUMNS else 'unknown'}" if odd else "other order"
        raise MetricsError(f"{what}; the first line reads {','.join(COLUMNS)}")
    return [_epoch(number, row) for number, row in enumerate(rows[1:], 2)]


def _epoch(line: int, row: list[str]) -> Epoch:
    if len(row) != len(COLUMNS):
        raise MetricsError(f"line {line} has {len(row)} cells, and there are {len(COLUMNS)} columns")
    cells = {name: cell.strip() for name, cell in zip(COLUMNS, row, strict=True)}
    values = {}
    for name, cell in cells.items():
        if cell == "" and name in MAY_BE_EMPTY:
            continue
        if not NUMBER.fullmatch(cell):
            raise MetricsError(f"line {line}: {name} is {cell[:40]!r}, which is no number")
        values[name] = float(cell)
    if not re.fullmatch(r"\d{1,9}", cells["epoch"], re.ASCII):
        raise MetricsError(f"line {line}: epoch is {cells['epoch'][:40]!r}; epochs are counted 1, 2, 3")
    return Epoch(int(cells["epoch"]), values)
