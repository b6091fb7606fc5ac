"""Strong and weak scaling: tables from raw timings, and their picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook.measurements.intervals import Interval, median_interval, ratio_interval
from srunbook.measurements.samples import Measurement, MeasurementError

CONFIDENCE = 0.95
"""Confidence of the intervals, where there are enough repeats."""

ENOUGH = 10
"""Repeats below which a table says that they are few."""

COLOURS = ("#1c1917", "#0b63a5")
"""Of the text, and of what was measured."""

KINDS = {
    "strong": "Strong scaling: the same work for any number of {over}. Speed-up is T(base) / T(N), efficiency is the "
    "speed-up divided by N / N(base).",
    "weak": "Weak scaling: as much work for each of the {over} as in the base case. Efficiency is T(base) / T(N), "
    "speed-up is the efficiency times N / N(base).",
}


@dataclass(frozen=True)
class Row:
    """One size.

    Args:
        count: Number of nodes, processes, or whatever was scaled.
        repeats: Number of samples.
        time: Median of the times in seconds, with its interval.
        speedup: How much more work a second does than in the base case.
        efficiency: The speed-up divided by how much more there was to work with.
    """

    count: int
    repeats: int
    time: Interval
    speedup: Interval
    efficiency: Interval


@dataclass(frozen=True)
class Table:
    """A scaling table.

    Args:
        kind: `strong` or `weak`.
        over: What was scaled: the name of a parameter, such as `nodes`.
        quantity: Name of the samples, such as `step_s`.
        rows: One for each size, in ascending order; the first is the base case.
        where: Which configurations were chosen.
        facts: What shaped the result: machine and parameters.
        source: Command, commit and date of the measurement.
    """

    kind: str
    over: str
    quantity: str
    rows: tuple[Row, ...]
    where: Mapping[str, Any]
    facts: Mapping[str, Any]
    source: str

    @property
    def base(self) -> Row:
        """Return the base case, which is the smallest size that was measured."""
        return self.rows[0]

    def text(self) -> str:
        """Write the table, and the sentences without which it says nothing: base case, repeats, intervals, limits."""
        cells = [[self.over, "repeats", self.quantity, "speed-up", "efficiency"]]
        for row in self.rows:
            ratios = [_written(row.speedup, ".4g"), _written(row.efficiency, ".1%")]
            cells.append([str(row.count), str(row.repeats), _written(row.time, ".4g"), *ratios])
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        facts = ", ".join(f"{name} {value}" for name, value in {**self.facts, **self.where}.items())
        return "\n".join([*lines, "", *self.notes(), *([f"Measured with: {facts}."] if facts else []), self.source, ""])

    def notes(self) -> list[str]:
        """Return sentences about the base case, the repeats, the intervals and the limits."""
        base, last = self.base, self.rows[-1]
        repeats = sorted({row.repeats for row in self.rows})
        notes = [
            KINDS[self.kind].format(over=self.over),
            f"Base case: {self._sized(base.count)}, median {base.time.value:.4g} s of {base.repeats} repeats.",
            f"{' to '.join(map(str, dict.fromkeys([repeats[0], repeats[-1]])))} repeats. Medians, with intervals of at "
            f"least {CONFIDENCE:.0%} in brackets: nonparametric for the times, for the ratios from the ends of "
            "two such intervals.",
        ]
        few = [str(row.count) for row in self.rows if row.repeats < ENOUGH]
        if few:
            notes.append(f"Fewer than {ENOUGH} repeats for {self.over} {', '.join(few)}: read these rows as a hint.")
        lowest = min(row.efficiency.confidence for row in self.rows)
        if lowest < CONFIDENCE:
            notes.append(f"Too few for {CONFIDENCE:.0%}: the least certain interval holds with {lowest:.0%} only.")
        better = ", ".join(str(row.count) for row in self.rows if row.efficiency.low > 1)
        if better:
            notes.append(f"More than 100% for {self.over} {better}: look for what is wrong with the base case.")
        size = self._sized(base.count)
        notes.append(f"Nothing was measured below {size} or beyond {last.count}, and nothing is said of it.")
        cores = self.facts.get("cores", last.count)
        if last.count > cores and not any("quota" in name or "paced" in name for name in (*self.facts, *self.where)):
            size = self._sized(cores)
            notes.append(f"Not valid beyond {size}: all share the {cores} cores of one machine, without quotas.")
        return notes

    def _sized(self, count: int) -> str:
        """Write a size in words, such as `1 node` and `2 nodes`."""
        return f"{count} {self.over.removesuffix('s') if count == 1 else self.over}"


def _written(interval: Interval, form: str) -> str:
    return f"{interval.value:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def strong(
    measurement: Measurement, *, over: str = "nodes", quantity: str = "step_s", where: Mapping[str, Any] | None = None
) -> Table:
    """Make a strong scaling table: the same work, done by more.

    Speed-up is T(base) / T(N), efficiency is the speed-up divided by N / N(base).

    Args:
        measurement: Raw samples: one configuration for each size.
        over: The parameter that was scaled.
        quantity: Name of the samples, which are seconds.
        where: Parameters that the chosen configurations have, as in `{"link": "300mbit"}`.

    Raises:
        MeasurementError: The measurement does not hold what the table needs.
    """
    return _table("strong", measurement, over, quantity, where or {})


def weak(
    measurement: Measurement, *, over: str = "nodes", quantity: str = "step_s", where: Mapping[str, Any] | None = None
) -> Table:
    """Make a weak scaling table: more work, done by as many more.

    Efficiency is T(base) / T(N), speed-up is the efficiency times N / N(base).

    Args:
        measurement: As for `strong`.
        over: As for `strong`.
        quantity: As for `strong`.
        where: As for `strong`.

    Raises:
        MeasurementError: The measurement does not hold what the table needs.
    """
    return _table("weak", measurement, over, quantity, where or {})


def _table(kind: str, measurement: Measurement, over: str, quantity: str, where: Mapping[str, Any]) -> Table:
    samples = _samples(measurement, over, quantity, where)
    first = min(samples)
    rows = []
    for count, times in sorted(samples.items()):
        more = count / first
        ratio = Interval(1.0, 1.0, 1.0, 1.0) if count == first else ratio_interval(samples[first], times, CONFIDENCE)
        speedup, efficiency = (ratio, ratio.times(1 / more)) if kind == "strong" else (ratio.times(more), ratio)
        rows.append(Row(count, len(times), median_interval(times, CONFIDENCE), speedup, efficiency))
    return Table(
        kind,
        over,
        quantity,
        tuple(rows),
        where=dict(where),
        facts={**measurement.machine, **measurement.parameters},
        source=f"Source: {measurement.command} at {measurement.commit[:12]}, {measurement.date}.",
    )


def _samples(measurement: Measurement, over: str, quantity: str, where: Mapping[str, Any]) -> dict[int, list[float]]:
    """Return the samples of the chosen configurations by size."""
    found: dict[int, list[float]] = {}
    for item in measurement.configurations:
        if any(item.parameters.get(name) != value for name, value in where.items()):
            continue
        count = item.parameters.get(over)
        if not isinstance(count, int):
            raise MeasurementError(
                f"configuration {item.name!r} has {over!r} {count!r}; it is a number, as in {{{over!r}: 2}}"
            )
        if quantity not in item.samples:
            raise MeasurementError(f"configuration {item.name!r} has no {quantity!r}; it has {', '.join(item.samples)}")
        if count in found:
            raise MeasurementError(
                f"two configurations have {over!r} {count}: choose with where, as in where={{'link': '300mbit'}}"
            )
        if min(item.samples[quantity]) <= 0:
            raise MeasurementError(f"configuration {item.name!r} has a {quantity!r} of {min(item.samples[quantity])} s")
        found[count] = item.samples[quantity]
    if not found:
        known = ", ".join(sorted({str(item.parameters) for item in measurement.configurations}))
        raise MeasurementError(f"no configuration has {where}; there are {known[:400]}")
    return found


def plot(table: Table, path: Path, *, colours: tuple[str, str] = COLOURS, transparent: bool = False) -> None:
    """Draw speed-up and efficiency with their intervals, beside what would be ideal.

    The file is written whole, and is the same for the same table. Needs matplotlib.

    Args:
        table: The table.
        path: Where to write; the ending says what: `.svg`, `.png`.
        colours: Colour of the text, and of what was measured.
        transparent: Whether the background is transparent.

    Raises:
        ValueError: matplotlib does not know the ending.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    text, colour = colours
    style: dict[Any, Any] = {"svg.hashsalt": "srunbook", "svg.fonttype": "none", "font.family": "sans-serif"}
    style |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), text)
    counts = [row.count for row in table.rows]
    drawn = {
        "speed-up": ([row.speedup for row in table.rows], [count / counts[0] for count in counts]),
        "efficiency": ([row.efficiency for row in table.rows], [1.0 for _ in counts]),
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        for axes, (name, (intervals, ideal)) in zip(figure.subplots(1, 2), drawn.items(), strict=True):
            values = [one.value for one in intervals]
            ends = [[one.value - one.low for one in intervals], [one.high - one.value for one in intervals]]
            axes.plot(counts, ideal, linestyle="--", color="0.5", label="ideal")
            axes.errorbar(counts, values, yerr=ends, marker="o", capsize=4, color=colour, label="measured")
            axes.set(xlabel=table.over, ylabel=name, xticks=counts)
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
            axes.legend(frameon=False)
        figure.suptitle(f"{table.kind} scaling, base {table._sized(counts[0])}", fontsize="medium")
        kind = path.suffix.removeprefix(".") or "svg"
        picture = io.BytesIO()
        figure.savefig(picture, format=kind, metadata={"Date": None} if kind == "svg" else {}, transparent=transparent)
    write_whole(path, picture.getvalue())
