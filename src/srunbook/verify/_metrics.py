"""Read the file metrics.csv: one line for each epoch."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from srunbook.verify._form import ResultsForm

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Epoch:
    """One line.

    Args:
        number: The epoch, from 1.
        values: Its numbers by column, without the epoch and without empty cells.
    """

    number: int
    values: dict[str, float]


@dataclass(frozen=True)
class Metrics:
    """The file.

    Args:
        columns: Its columns; the first is `epoch`.
        epochs: Its lines, in the order of the file.
    """

    columns: tuple[str, ...]
    epochs: tuple[Epoch, ...]


class MetricsError(ValueError):
    """The file has another form; the message says where."""


def parse_metrics(text: str, form: ResultsForm) -> Metrics:
    """Read metrics.csv.

    Args:
        text: The file.
        form: What its columns should be.

    Raises:
        MetricsError: It has other columns than it should, or a cell is not a number.
    """
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row]
    except csv.Error as error:
        raise MetricsError(f"this is not CSV: {error}") from None
    columns = tuple(cell.strip() for cell in rows[0]) if rows else ()
    _check_columns(columns, form.columns)
    lines = [(line, _cells(line, row, columns)) for line, row in enumerate(rows[1:], 2)]
    may_be_empty = form.may_be_empty
    if may_be_empty is None:
        may_be_empty = tuple(name for name in columns[1:] if not any(cells[name] for _, cells in lines))
    return Metrics(columns, tuple(_epoch(line, cells, may_be_empty) for line, cells in lines))


def _check_columns(columns: Sequence[str], expected: Sequence[str] | None) -> None:
    if expected is None:
        if columns[:1] != ("epoch",):
            raise MetricsError(f"the first column is {columns[0][:40] if columns else ''!r}; it should be 'epoch'")
        twice = [name for name, times in Counter(columns).items() if times > 1]
        if twice:
            raise MetricsError(f"column {twice[0][:40]!r} is there twice")
        if len(columns) == 1:
            raise MetricsError("'epoch' is the only column; expected numbers beside it")
    elif tuple(columns) != tuple(expected):
        missing = [f"column {name!r} is missing" for name in expected if name not in columns]
        unknown = [f"column {name[:40]!r} is unknown" for name in columns if name not in expected]
        what = [*missing, *unknown, "other order"][0]
        raise MetricsError(f"{what}; the first line reads {','.join(expected)}")


def _cells(line: int, row: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    if len(row) != len(columns):
        raise MetricsError(f"line {line} has {len(row)} cells, and there are {len(columns)} columns")
    return {name: cell.strip() for name, cell in zip(columns, row, strict=True)}


def _epoch(line: int, cells: dict[str, str], may_be_empty: Collection[str]) -> Epoch:
    values = {}
    for name, cell in cells.items():
        if cell == "" and name in may_be_empty:
            continue
        if not NUMBER.fullmatch(cell):
            raise MetricsError(f"line {line}: {name} is {cell[:40]!r}, which is not a number")
        values[name] = float(cell)
    number = cells["epoch"]
    if not re.fullmatch(r"\d{1,9}", number, re.ASCII):
        raise MetricsError(f"line {line}: epoch is {number[:40]!r}; epochs are counted 1, 2, 3")
    del values["epoch"]
    return Epoch(int(number), values)
