"""Strong and weak scaling: tables from raw timings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from srunbook.measurements._samples import Configuration, Measurement
from srunbook.measurements._statistics import ENOUGH, Interval, median_interval, ratio_interval

KINDS = {
    "strong": "Strong scaling: the same work for any number of {over}. Speed-up is T(base) / T(N), efficiency is the "
    "speed-up divided by N / N(base).",
    "weak": "Weak scaling: as much work for each of the {over} as in the base case. Efficiency is T(base) / T(N), "
    "speed-up is the efficiency times N / N(base).",
}


class ScalingError(ValueError):
    """A measurement does not hold what a table needs; the message says what it holds."""


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
        confidence: Confidence that was asked for.
        rows: One for each size, in ascending order; the first is the base case.
        where: Which configurations were chosen.
        facts: What shaped the result: machine and parameters.
        source: Command, commit and date of the measurement.
    """

    kind: str
    over: str
    quantity: str
    confidence: float
    rows: tuple[Row, ...]
    where: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def base(self) -> Row:
        """Return the base case, which is the smallest size that was measured."""
        return self.rows[0]

    def text(self) -> str:
        """Write the table, and the sentences without which it says nothing: base case, repeats, intervals, limits."""
        header = [self.over, "repeats", self.quantity, "speed-up", "efficiency"]
        cells = [
            [str(row.count), str(row.repeats), _range(row.time), _range(row.speedup), _percent(row.efficiency)]
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
        lines = [
            "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in (header, *cells)
        ]
        return "\n".join([*(line.rstrip() for line in lines), "", *self.notes(), *self.origin(), ""])

    def notes(self) -> list[str]:
        """Return sentences about the base case, the repeats, the intervals and the limits."""
        base, few = self.base, [row for row in self.rows if row.repeats < ENOUGH]
        repeats = sorted({row.repeats for row in self.rows})
        notes = [
            KINDS[self.kind].format(over=self.over),
            f"Base case: {self.sized(base.count)}, median {base.time.value:.4g} s of {base.repeats} repeats.",
            f"{' to '.join(map(str, dict.fromkeys([repeats[0], repeats[-1]])))} repeats. Medians, with intervals of at "
            f"least {self.confidence:.0%} in brackets: nonparametric for the times, for the ratios from the ends of "
            "two such intervals.",
        ]
        if few:
            sizes = ", ".join(str(row.count) for row in few)
            notes.append(f"Fewer than {ENOUGH} repeats for {self.over} {sizes}: read these rows as a hint.")
        weak = [row for row in self.rows if row.efficiency.confidence < self.confidence]
        if weak:
            lowest = min(row.efficiency.confidence for row in weak)
            notes.append(f"Too few for {self.confidence:.0%}: the least certain interval holds with {lowest:.0%} only.")
        better = [str(row.count) for row in self.rows if row.efficiency.low > 1]
        if better:
            notes.append(
                f"More than 100% for {self.over} {', '.join(better)}: look for what is wrong with the base case."
            )
        notes += [self._limits(), *self._crowded()]
        return notes

    def origin(self) -> list[str]:
        """Return sentences about where the samples come from: machine, parameters, command, commit and date."""
        facts = ", ".join(f"{name} {value}" for name, value in {**self.facts, **self.where}.items())
        return [*([f"Measured with: {facts}."] if facts else []), *([self.source] if self.source else [])]

    def sized(self, count: int) -> str:
        """Write a size in words, such as `1 node` and `2 nodes`."""
        return f"{count} {self.over.removesuffix('s') if count == 1 else self.over}"

    def _limits(self) -> str:
        largest = self.rows[-1].count
        return (
            f"Nothing was measured below {self.sized(self.base.count)} or beyond {largest}, and nothing is said of it."
        )

    def _crowded(self) -> list[str]:
        """Warn where all sizes share the cores of one machine, and nothing says that each has a quota."""
        cores = self.facts.get("cores")
        quota = any("quota" in name or "paced" in name for name in (*self.facts, *self.where))
        if not isinstance(cores, (int, float)) or quota or self.rows[-1].count <= cores:
            return []
        return [
            f"Not valid beyond {self.sized(int(cores))}: all share the {cores} cores of one machine, without quotas."
        ]


def _range(interval: Interval) -> str:
    return f"{interval.value:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _percent(interval: Interval) -> str:
    return f"{interval.value:.1%} [{interval.low:.1%}, {interval.high:.1%}]"


def strong(
    measurement: Measurement,
    *,
    over: str = "nodes",
    quantity: str = "step_s",
    where: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> Table:
    """Make a strong scaling table: the same work, done by more.

    Speed-up is T(base) / T(N), efficiency is the speed-up divided by N / N(base).

    Args:
        measurement: Raw samples: one configuration for each size.
        over: The parameter that was scaled.
        quantity: Name of the samples, which are seconds.
        where: Parameters that the chosen configurations have, as in `{"link": "300mbit"}`.
        confidence: Confidence of the intervals, above 0 and below 1.

    Raises:
        ScalingError: The measurement does not hold what the table needs.
    """
    return _table("strong", measurement, over, quantity, where or {}, confidence)


def weak(
    measurement: Measurement,
    *,
    over: str = "nodes",
    quantity: str = "step_s",
    where: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
) -> Table:
    """Make a weak scaling table: more work, done by as many more.

    Efficiency is T(base) / T(N), speed-up is the efficiency times N / N(base).

    Args:
        measurement: As for `strong`.
        over: As for `strong`.
        quantity: As for `strong`.
        where: As for `strong`.
        confidence: As for `strong`.

    Raises:
        ScalingError: The measurement does not hold what the table needs.
    """
    return _table("weak", measurement, over, quantity, where or {}, confidence)


def _table(
    kind: str, measurement: Measurement, over: str, quantity: str, where: Mapping[str, Any], confidence: float
) -> Table:
    samples = _samples(measurement.configurations, over, quantity, where)
    first = min(samples)
    rows = []
    for count, times in sorted(samples.items()):
        more = count / first
        ratio = Interval(1.0, 1.0, 1.0, 1.0) if count == first else ratio_interval(samples[first], times, confidence)
        scaled = [_times(ratio, 1.0), _times(ratio, 1.0 / more)] if kind == "strong" else [_times(ratio, more), ratio]
        rows.append(Row(count, len(times), median_interval(times, confidence), *scaled))
    return Table(
        kind,
        over,
        quantity,
        confidence,
        tuple(rows),
        where=dict(where),
        facts={**measurement.machine, **measurement.parameters},
        source=f"Source: {measurement.command} at {measurement.commit[:12]}, {measurement.date}.",
    )


def _times(interval: Interval, factor: float) -> Interval:
    return Interval(interval.value * factor, interval.low * factor, interval.high * factor, interval.confidence)


def _samples(
    configurations: Sequence[Configuration], over: str, quantity: str, where: Mapping[str, Any]
) -> dict[int, list[float]]:
    """Return the samples of the chosen configurations by size."""
    chosen = [
        item for item in configurations if all(item.parameters.get(name) == value for name, value in where.items())
    ]
    if not chosen:
        known = sorted({str(item.parameters) for item in configurations})
        raise ScalingError(f"no configuration has {dict(where)}; there are {', '.join(known)[:400]}")
    found: dict[int, list[float]] = {}
    for item in chosen:
        count = item.parameters.get(over)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ScalingError(
                f"configuration {item.name!r} has {over!r} {count!r}; it is a number, as in {{{over!r}: 2}}"
            )
        if quantity not in item.samples:
            raise ScalingError(f"configuration {item.name!r} has no {quantity!r}; it has {', '.join(item.samples)}")
        if count in found:
            raise ScalingError(
                f"two configurations have {over!r} {count}: choose with where, as in where={{'link': '300mbit'}}"
            )
        if min(item.samples[quantity]) <= 0:
            raise ScalingError(f"configuration {item.name!r} has a {quantity!r} of {min(item.samples[quantity])} s")
        found[count] = list(item.samples[quantity])
    return found
