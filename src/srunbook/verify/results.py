"""Check a folder of results: the files that have to be there, and each metrics.csv against its own header."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from srunbook.verify.logs import is_file
from srunbook.verify.report import Check, failed, passed

METRICS = "metrics.csv"
AGAIN = "did the job end early, or two jobs write into one folder? Look at the log of rank 0"
DIVERGED = "training diverged: look at the losses before it, lower the learning rate, check the data"

Span = tuple[int, int, int]
"""The first epoch, the last one, and the step from one to the next, 0 if there is only one."""


def check_files(results: Sequence[Path], names: Sequence[str]) -> Check:
    """Check that the folder of results holds files, and that they are not empty."""
    if not results:
        return failed("files", "there is no folder of results", "did the job write one? Look into its log")
    paths = [results[0] / name for name in names]
    sizes = {path: path.stat().st_size if is_file(path) else None for path in paths}
    wrong = [f"{path.name} is {'missing' if size is None else 'empty'}" for path, size in sizes.items() if not size]
    if wrong:
        hint = f"did rank 0 come to its end, and can it write there? ls -ld {results[0]}"
        return failed("files", f"{', '.join(wrong)} in {results[0]}", hint)
    return passed("files", ", ".join(f"{path.name} {size} bytes" for path, size in sizes.items()))


def check_metrics(results: Sequence[Path], asked: int | None) -> Check | None:
    """Check that each metrics.csv holds numbers, all of them finite, and each epoch once; None if there is none.

    Columns whose first value is no number are left out, and so are empty cells. No line is kept. `asked` is the number
    of epochs that the ranks were asked for, if they say.
    """
    checks = []
    for path in (path for folder in results for path in sorted(folder.rglob(METRICS)) if is_file(path)):
        try:
            checks.append(passed(METRICS, f"{path}: {_summary(path, asked)}"))
        except FloatingPointError as error:
            return failed(METRICS, f"{path}: {error}", DIVERGED)
        except (OSError, csv.Error, ValueError) as error:
            return failed(METRICS, f"{path}: {error}", AGAIN)
    more = f" and {len(checks) - 1} more" if checks[1:] else ""
    return replace(checks[0], evidence=checks[0].evidence + more) if checks else None


def _summary(path: Path, asked: int | None) -> str:
    """Return what a table holds, in words."""
    last: dict[str, float] = {}
    text: set[str] = set()
    span: Span | None = None
    lines = 0
    with path.open(encoding="utf-8", errors="replace", newline="") as stream:
        rows = csv.reader(stream, skipinitialspace=True)
        columns = next(rows, [""])
        for cells in filter(None, rows):
            lines, line = lines + 1, rows.line_num
            if len(cells) != len(columns):
                raise ValueError(f"line {line} has {len(cells)} cells and the header {len(columns)}: was it cut off?")
            for name, cell in zip(columns, cells, strict=True):
                if name == "epoch" and cell.isdecimal():
                    span = _next(span, int(cell), line, several="step" in columns)
                elif cell and name not in text:
                    value = _number(name, cell, line, required=name in last)
                    if value is None:
                        text.add(name)
                    else:
                        last[name] = value
    if not lines:
        raise ValueError("it holds no numbers")
    if asked and span and span[1] not in (asked, asked - 1 + span[0]):
        raise ValueError(f"the last epoch is {span[1]}; {asked} epochs were asked for")
    ends = ", ".join(f"{name} {value:g}" for name, value in list(last.items())[:12])
    which = f"epochs {span[0]} to {span[1]}" if span else f"{lines} lines"
    return f"{which}{f'; at the end {ends}' if ends else ''}"


def _next(span: Span | None, epoch: int, line: int, *, several: bool) -> Span:
    """Return the epochs up to this one, which has to follow the one before unless an epoch has several lines."""
    if span is None:
        return epoch, epoch, 0
    first, before, step = span
    if several:
        return first, epoch, step
    if epoch <= before:
        raise ValueError(f"line {line}: epoch {epoch} comes after epoch {before}")
    step = step or epoch - before
    if epoch != before + step:
        raise ValueError(f"line {line}: epoch {before + step} is missing")
    return first, epoch, step


def _number(name: str, cell: str, line: int, *, required: bool) -> float | None:
    """Return the number in a cell; None in a column of text."""
    try:
        value = float(cell)
    except ValueError:
        if required:
            raise ValueError(f"line {line}: {name} is {cell[:40]!r}, which is not a number") from None
        return None
    if not math.isfinite(value):
        raise FloatingPointError(f"line {line}: {name} is {cell[:40]}")
    return value
