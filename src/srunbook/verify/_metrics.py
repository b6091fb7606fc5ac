"""Read the file metrics.csv, one line for each epoch, in one pass that keeps no line."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srunbook._text import LONGEST_LINE, read_lines
from srunbook.verify._epochs import SHOWN, Epochs
from srunbook.verify._form import ResultsForm
from srunbook.verify._logs import Log


class MetricsError(ValueError):
    """The file has another form; the message says where."""


@dataclass
class Losses:
    """What came of comparing each epoch with the log of rank 0.

    Args:
        compared: How many numbers agree.
        silent: The first epochs of which the log has no line.
        unsaid: The first epochs whose line names none of the columns.
        names: The columns that the first such line names.
        uneven: The first epochs whose line names others than these.
        different: The first number that differs, in words; empty where none does.
    """

    compared: int = 0
    silent: list[int] = field(default_factory=list)
    unsaid: list[int] = field(default_factory=list)
    names: frozenset[str] = frozenset()
    uneven: list[int] = field(default_factory=list)
    different: str = ""


@dataclass
class Metrics:
    """What the file holds.

    Args:
        columns: Its columns; one of them is `epoch`.
        epochs: The numbers of its epochs.
        not_finite: The first numbers that are not finite, in words; empty where all are.
        final: The numbers of the last line by column, without the epoch and without empty cells.
        losses: How its numbers and those in the log of rank 0 compare.
    """

    columns: tuple[str, ...]
    epochs: Epochs = field(default_factory=Epochs)
    not_finite: str = ""
    final: dict[str, float] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)


def parse_metrics(source: Path | str, form: ResultsForm, log: Log | None = None) -> Metrics:
    """Read metrics.csv.

    Args:
        source: The file, or its text.
        form: What its columns should be.
        log: The log of rank 0, to compare each epoch with.

    Raises:
        MetricsError: It has other columns than it should, or a cell is not a number.
        OSError: The file cannot be read.
    """
    rows = _rows(source)
    _, header = next(rows, (1, []))
    metrics = Metrics(tuple(cell.strip() for cell in header))
    _check_columns(metrics.columns, form.columns)
    cells = _Cells(metrics.columns, form.may_be_empty)
    for line, row in rows:
        number, values = cells.read(line, row)
        metrics.epochs.add(number)
        metrics.final = values
        if not metrics.not_finite and not math.isfinite(sum(values.values())):  # or their sum is merely too large
            wrong = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
            metrics.not_finite = f"epoch {number}: {', '.join(wrong)}" if wrong else ""
        if log:
            _compare(metrics.losses, number, dict.fromkeys(metrics.columns) | values, log)
    cells.check_empty()
    return metrics


def _rows(source: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that is not empty, with its number among these."""
    number = 0
    for line in _lines(source):
        if line:
            number += 1
            try:
                yield number, line.split(",") if '"' not in line else next(csv.reader([line]))
            except csv.Error as error:
                raise MetricsError(f"line {number} is not CSV: {error}") from None


def _lines(source: Path | str) -> Iterator[str]:
    if isinstance(source, str):
        yield from source.splitlines()
        return
    for line in read_lines(source):
        if len(line) > LONGEST_LINE:
            raise MetricsError(f"a line is longer than {LONGEST_LINE} bytes")
        yield line.decode("utf-8", errors="replace")


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


class _Cells:
    """Reads the cells of a line.

    Args:
        columns: The columns of the table.
        may_be_empty: Columns whose cells may be empty; None for those without a single value.
    """

    def __init__(self, columns: Sequence[str], may_be_empty: Sequence[str] | None) -> None:
        self.columns = columns
        self.may_be_empty = may_be_empty
        self.filled: set[str] = set()
        self.empty: dict[str, int] = {}

    def read(self, line: int, row: Sequence[str]) -> tuple[int, dict[str, float]]:
        """Return the epoch of a line, and its other numbers by column."""
        if len(row) != len(self.columns):
            raise MetricsError(f"line {line} has {len(row)} cells, and there are {len(self.columns)} columns")
        values = {}
        number = ""
        for name, text in zip(self.columns, row, strict=True):
            cell = text.strip()
            if name == "epoch":
                number = cell
            elif cell or (self.may_be_empty is not None and name not in self.may_be_empty):
                values[name] = _number(line, name, cell)
            else:
                self.empty.setdefault(name, line)
        self.filled.update(values)
        if not re.fullmatch(r"[0-9]{1,9}", number):
            _number(line, "epoch", number)
            raise MetricsError(f"line {line}: epoch is {number[:40]!r}; epochs are counted 1, 2, 3")
        return int(number), values

    def check_empty(self) -> None:
        """Reject an empty cell in a column that has values, unless it may be empty."""
        wrong = [(line, name) for name, line in self.empty.items() if name in self.filled]
        if wrong and self.may_be_empty is None:
            line, name = min(wrong)
            raise MetricsError(f"line {line}: {name} is '', which is not a number")


def _number(line: int, name: str, cell: str) -> float:
    try:
        if cell.isascii() and "_" not in cell:  # float() would take other digits, and 1_0
            return float(cell)
    except ValueError:
        pass
    raise MetricsError(f"line {line}: {name} is {cell[:40]!r}, which is not a number")


def _compare(losses: Losses, number: int, values: Mapping[str, float | None], log: Log) -> None:
    """Compare the numbers of an epoch with what rank 0 printed, to the last digit; an empty cell is None."""
    if number not in log.epochs:
        losses.silent += [number] if len(losses.silent) < SHOWN else []
        return
    said = {name: text for name, text in log.numbers(number).items() if name in values}
    losses.compared += len(said)
    losses.names = losses.names or frozenset(said)
    other = losses.unsaid if not said else losses.uneven if losses.names != said.keys() else None
    if other is not None and len(other) < SHOWN:
        other.append(number)
    for name, text in said.items():
        value = values[name]
        if not losses.different and (value is None or not _same(value, text)):
            shown = "empty" if value is None else f"{value:g}"
            losses.different = f"epoch {number}: {name} is {shown} in metrics.csv and {text} in {log.name}"


def _same(value: float, text: str) -> bool:
    """Tell whether a number, rounded, prints as this text."""
    mantissa, _, exponent = text.partition("e")
    digits = len(mantissa.partition(".")[2])
    if not math.isfinite(value) or not math.isfinite(float(text)):
        return str(value) == text
    return abs(value - float(text)) <= 0.51 * 10.0 ** (int(exponent or 0) - digits)
