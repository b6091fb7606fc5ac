"""The directive `measured-bars`: quantities of one unit side by side, for each value of a parameter that is a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils.parsers.rst import directives
from measured import UNITS, Measured, axes_of, conditions, parameter, quantities, words
from repository import FileError

from srunbook.measurements import read_measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from docutils import nodes
    from sphinx.application import Sphinx

Bars = list[tuple[str, list[tuple[str, float, float, float] | None]]]
"""Groups: the name of each, and of its bars quantity, median, smallest and largest sample; None if unmeasured."""


class MeasuredBars(Measured):
    """A plot with a group of bars for each configuration, and in it a bar for each quantity."""

    option_spec: ClassVar = {
        "x": directives.unchanged_required,
        "y": directives.unchanged_required,
        "where": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Draw the plot for both themes, and fold its source."""
        for option in ("x", "y", "alt"):
            if option not in self.options:
                raise FileError(
                    f"the option {option!r} is missing, as in `:x: program`, `:y: sent_MB`, `:alt: what it shows`"
                )
        measurement = read_measurement(path)
        unit_of(words(self.options["y"]))
        names = quantities(measurement, self.options["y"])
        where = conditions(self.options.get("where", ""))
        found: Bars = [
            (
                str(parameter(part, self.options["x"])),
                [
                    (name, part.median(name), min(part.samples[name]), max(part.samples[name]))
                    if part.samples.get(name)
                    else None
                    for name in names
                ],
            )
            for part in measurement.configurations
            if where.items() <= part.parameters.items()
        ]
        if not found:
            raise FileError(f"no configuration has {self.options['where']}")
        yield from self.pictures(path, found, draw)
        ranges = any(bar and bar[2] < bar[3] for _, group in found for bar in group)
        text = "Medians; lines reach from the smallest to the largest sample. " if ranges else ""
        yield self.details(f"{text}Machine, raw data", self.source(path, measurement, ""))


def unit_of(names: list[str]) -> str:
    """Return the unit that all quantities end with.

    Raises:
        FileError: They end with several, or with none.

    >>> unit_of(["counted_MB", "formula_MB"])
    'MB'
    """
    endings = {name.rpartition("_")[2] for name in names}
    if len(endings) != 1 or not endings <= UNITS.keys():
        raise FileError(f"{', '.join(names)} do not end with one unit of {', '.join(UNITS)}")
    return UNITS[endings.pop()]


def draw(target: Path, groups: Bars, options: dict[str, str], theme: str) -> None:
    """Draw groups of horizontal bars, the first on top."""
    names = words(options["y"])
    thick = 0.8 / len(names)
    with axes_of(target, theme, height=0.9 + len(groups) * (0.15 + 0.16 * len(names))) as (axes, colours):
        for index, name in enumerate(names):
            bars = [(place, group[index]) for place, (_, group) in enumerate(groups)]
            known = [(place, bar) for place, bar in bars if bar]
            axes.barh(
                [place + (index - (len(names) - 1) / 2) * thick for place, _ in known],
                [median for _, (_, median, _, _) in known],
                height=thick * 0.9,
                xerr=[
                    [median - low for _, (_, median, low, _) in known],
                    [high - median for _, (_, median, _, high) in known],
                ]
                if any(low < high for _, (_, _, low, high) in known)
                else None,
                label=name.rpartition("_")[0].replace("_", " "),
                color=colours[index % len(colours)],
            )
        axes.set_yticks(range(len(groups)), [name for name, _ in groups])
        axes.invert_yaxis()
        axes.set_xlabel(unit_of(names))
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
        if len(names) > 1:
            axes.legend(frameon=False)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("measured-bars", MeasuredBars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
