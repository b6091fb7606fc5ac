"""Measurements: the raw samples behind every figure, and what may be said about scaling from them.

`strong` and `weak` make tables with confidence intervals from a measurement; a table's text states base case, repeats
and limits. This file needs the standard library alone, and `plot` matplotlib: copy it to measure your own programs.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = 1
"""Version of the files' form."""

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


class MeasurementError(ValueError):
    """A measurement is missing, or does not hold what is needed; the message says what it holds."""


@dataclass(frozen=True)
class Configuration:
    """Raw samples of one configuration.

    Args:
        name: What a row of the table is called.
        parameters: What was set for it.
        samples: For each quantity, named with its unit (`wall_s`, `busbw_MBps`), all its samples.

    Raises:
        MeasurementError: There are no samples, a series is empty, or a sample is infinite or undefined.
    """

    name: str
    parameters: dict[str, Any]
    samples: dict[str, list[float]]

    def __post_init__(self) -> None:
        """Check the samples."""
        if not self.samples:
            raise MeasurementError(
                f"measurement {self.name!r} has no samples; it has some for each quantity, as in {{'wall_s': [1.0]}}"
            )
        for quantity, values in self.samples.items():
            if not values or not all(map(math.isfinite, values)):
                raise MeasurementError(f"measurement {self.name!r}: {quantity!r} is empty or not finite")

    def median(self, quantity: str) -> float:
        """Return the median of one quantity, in the unit that its name ends with.

        >>> Configuration("a", {}, {"wall_s": [3.0, 1.0, 2.0]}).median("wall_s")
        2.0

        Raises:
            KeyError: The quantity was not measured.
        """
        return statistics.median(self.samples[quantity])


@dataclass(frozen=True)
class Measurement:
    """One run of a benchmark program.

    Args:
        command: What was typed.
        commit: Commit of the repository, with `+` where the tree had changes.
        date: ISO date.
        machine: Cores, memory, link, quota, processor: whatever shaped the result.
        versions: Versions of what was measured.
        configurations: The raw samples.
        parameters: What all configurations share (repeats, warm-up, sizes).
        schema: Version of this form.

    Raises:
        MeasurementError: The schema differs, or there are no configurations.
    """

    command: str
    commit: str
    date: str
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    configurations: list[Configuration]
    parameters: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Check the schema, and that something was measured."""
        if self.schema != SCHEMA:
            raise MeasurementError(f"measurement has schema {self.schema}; this version reads {SCHEMA}")
        if not self.configurations:
            raise MeasurementError("measurement has no configurations")

    @classmethod
    def taken_now(
        cls,
        command: str,
        configurations: list[Configuration],
        *,
        versions: Mapping[str, str],
        parameters: Mapping[str, Any] | None = None,
        machine: Mapping[str, str | int | float] | None = None,
    ) -> Measurement:
        """Stamp samples with this machine, the commit of the current folder's repository, and today's date.

        Args:
            command: What was typed.
            configurations: The raw samples.
            versions: Versions of what was measured; Python's is added.
            parameters: What all configurations share.
            machine: What shaped the result beyond cores, memory and processor.

        Raises:
            MeasurementError: As for `Measurement`.
        """
        describe = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+"]
        commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
        here: dict[str, str | int | float] = {
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "memory_GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "system": f"{platform.system()} {platform.machine()}",
        }
        return cls(
            command=command,
            commit=commit or "unknown",
            date=datetime.now(UTC).date().isoformat(),
            machine={**here, **(machine or {})},
            versions={"python": sys.version.split()[0], **versions},
            configurations=configurations,
            parameters=dict(parameters or {}),
        )


def read_measurement(path: Path) -> Measurement:
    """Read a measurement.

    Raises:
        MeasurementError: The file is not JSON, or a field is missing, unknown or empty.
        OSError: The file cannot be read.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["configurations"] = [Configuration(**row) for row in fields["configurations"]]
        return Measurement(**fields)
    except (TypeError, KeyError, ValueError) as problem:
        raise MeasurementError(f"{path} is no measurement: {problem}") from None


def write_measurement(path: Path, measurement: Measurement) -> None:
    """Write a measurement.

    Raises:
        ValueError: A parameter is infinite or undefined, which JSON cannot hold.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(measurement), indent=2, allow_nan=False) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Interval:
    """A median, or a ratio of two, with its confidence interval.

    Args:
        value: The median, or the ratio.
        low: Lower end.
        high: Upper end.
        confidence: Probability, at least, with which such an interval holds the true value.
    """

    value: float
    low: float
    high: float
    confidence: float

    def times(self, factor: float) -> Interval:
        """Return the interval of the value multiplied by a factor above 0.

        >>> Interval(2.0, 1.0, 3.0, 0.95).times(2.0)
        Interval(value=4.0, low=2.0, high=6.0, confidence=0.95)
        """
        return Interval(self.value * factor, self.low * factor, self.high * factor, self.confidence)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the median with a nonparametric confidence interval.

    Of n sorted samples, the true median lies between the k-th smallest and the k-th largest with a probability that
    follows from the binomial distribution alone: 1 - 2 P(fewer than k of n coins show heads). The largest k that
    reaches the confidence is taken. If no k does, the interval spans all samples, and its confidence is what that
    gives. Source: T. Hoefler and R. Belli, Scientific Benchmarking of Parallel Computing Systems, SC 2015, section
    3.1.3, after J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems, 2010.

    Args:
        samples: Independent samples, at least one.
        confidence: The confidence to reach, above 0 and below 1.

    Raises:
        ValueError: There are no samples, or the confidence lies outside (0, 1).

    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    Interval(value=3.5, low=1.0, high=6.0, confidence=0.96875)
    """
    if not samples:
        raise ValueError("no samples have no median; give at least one, as in [1.0, 1.1, 1.2]")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it lies between 0 and 1, as 0.95 does")
    ordered = sorted(samples)
    count = len(ordered)

    def coverage(outside: int) -> float:
        return float(max(0.0, 1.0 - 2.0 * (outside / 2**count)))

    k, outside = 1, 1  # outside / 2^n: probability that fewer than k of n coins show heads
    while k < count - k and coverage(outside + math.comb(count, k)) >= confidence:
        outside += math.comb(count, k)
        k += 1
    return Interval(statistics.median(ordered), ordered[k - 1], ordered[count - k], coverage(outside))


def ratio_interval(over: Sequence[float], under: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the ratio of two medians of positive samples with its confidence interval.

    Each median gets an interval that misses with at most half of the allowed probability. Both hold at once with the
    whole confidence (Bonferroni), and then the ratio lies between the extreme quotients of their ends. That is wider
    than needed, but it holds for any distribution and for series that depend on each other, and it draws no random
    numbers: the same samples give the same interval.

    Args:
        over: Samples of the numerator.
        under: Samples of the denominator.
        confidence: The confidence to reach.

    Raises:
        ValueError: A sample is zero or negative, there are none, or the confidence lies outside (0, 1).

    >>> ratio = ratio_interval([4.0] * 10, [2.0] * 10)
    >>> ratio.value, ratio.low, ratio.high, round(ratio.confidence, 3)
    (2.0, 2.0, 2.0, 0.957)
    """
    if min(*over, *under, 1.0) <= 0:
        raise ValueError(f"a sample is {min(*over, *under)}; a ratio needs samples above 0")
    each = 1.0 - (1.0 - confidence) / 2.0
    top, bottom = median_interval(over, each), median_interval(under, each)
    both = max(0.0, top.confidence + bottom.confidence - 1.0)
    return Interval(top.value / bottom.value, top.low / bottom.high, top.high / bottom.low, both)


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
        notes.append(f"Measured from {base.count} to {self._sized(last.count)}, and valid there only.")
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
    by_size: dict[int, list[float]] = {}
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
        if count in by_size:
            raise MeasurementError(
                f"two configurations have {over!r} {count}: choose with where, as in where={{'link': '300mbit'}}"
            )
        if min(item.samples[quantity]) <= 0:
            raise MeasurementError(f"configuration {item.name!r} has a {quantity!r} of {min(item.samples[quantity])} s")
        by_size[count] = item.samples[quantity]
    if not by_size:
        known = ", ".join(sorted({str(item.parameters) for item in measurement.configurations}))
        raise MeasurementError(f"no configuration has {where}; there are {known[:400]}")
    return by_size


def plot(table: Table, path: Path, *, colours: tuple[str, str] = COLOURS, transparent: bool = False) -> None:
    """Draw speed-up and efficiency with their intervals, beside what would be ideal.

    The same table gives the same file. Needs matplotlib.

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
            values = [interval.value for interval in intervals]
            ends = [[each.value - each.low for each in intervals], [each.high - each.value for each in intervals]]
            axes.plot(counts, ideal, linestyle="--", color="0.5", label="ideal")
            axes.errorbar(counts, values, yerr=ends, marker="o", capsize=4, color=colour, label="measured")
            axes.set(xlabel=table.over, ylabel=name, xticks=counts)
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
            axes.legend(frameon=False)
        figure.suptitle(f"{table.kind} scaling, base {table._sized(counts[0])}", fontsize="medium")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {}, transparent=transparent)
