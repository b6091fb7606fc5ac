"""Figures from raw samples: the tables and plots of pages, and single figures in their sentences.

`measured-table` shows medians, `measured-outcomes` what came of trials, `measured-plot` a picture, `scaling-table`
strong or weak scaling. The role `measured` writes one figure. Ranges, machine and raw data are one click away.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import measurements
from colours import PLOT, plot_style
from docutils import nodes
from docutils.parsers.rst import directives
from measurements import Configuration, Measurement, read_measurement
from repository import FileError, RepositoryDirective, disclosure, download, find, line
from sphinx.util.docutils import SphinxRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sphinx.application import Sphinx

UNITS = {
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "MB": "MB",
    "MBps": "MB/s",
    "GBps": "GB/s",
    "GiB": "GiB",
    "MiB": "MiB",
    "percent": "%",
}
"""How the last part of a quantity's name is written as a unit: `wall_s` is `wall (s)`."""


def words(option: str) -> list[str]:
    """Split an option such as `nodes, tasks`."""
    return [word.strip() for word in option.split(",") if word.strip()]


def heading(quantity: str) -> str:
    """Write a quantity with its unit.

    >>> heading("allreduce_busbw_MBps"), heading("steps")
    ('allreduce busbw (MB/s)', 'steps')
    """
    name, _, unit = quantity.rpartition("_")
    return f"{name.replace('_', ' ')} ({UNITS[unit]})" if name and unit in UNITS else quantity.replace("_", " ")


def number(value: float) -> str:
    """Write a figure with three significant digits.

    >>> number(0.012345), number(3.14159), number(1234.5), number(8)
    ('0.0123', '3.14', '1230', '8')
    """
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def with_unit(value: float, quantity: str) -> str:
    """Write a figure with the unit, or with the number of trials, that the name of its quantity ends with.

    >>> with_unit(28.0, "survived_of_30"), with_unit(0.2731, "stall_s"), with_unit(8.0, "nodes")
    ('28 of 30', '0.273 s', '8')
    """
    trials = re.search(r"_of_(\d+)$", quantity)
    if trials:
        return f"{number(value)} of {trials[1]}"
    return f"{number(value)} {UNITS.get(quantity.rpartition('_')[2], '')}".rstrip()


def range_of(samples: list[float]) -> str:
    """Write the range of some samples, and their number.

    >>> range_of([1.0, 2.0, 4.0]), range_of([2.0]), range_of([])
    ('1 to 4, n=3', '2, n=1', '')
    """
    if not samples:
        return ""
    low, high = number(min(samples)), number(max(samples))
    return f"{low if low == high else f'{low} to {high}'}, n={len(samples)}"


def conditions(option: str) -> dict[str, Any]:
    """Read parameters such as `link=300mbit, batch=64`.

    >>> conditions("link=300mbit, batch=64")
    {'link': '300mbit', 'batch': 64}
    """
    pairs = (word.partition("=") for word in words(option))
    return {name: int(value) if value.isdigit() else value for name, _, value in pairs}


def parameter(configuration: Configuration, name: str) -> Any:
    """Return a parameter of a configuration.

    Raises:
        FileError: It has no such parameter.
    """
    if name not in configuration.parameters:
        raise FileError(
            f"{configuration.name!r} has no parameter {name!r}; it has {', '.join(configuration.parameters)}"
        )
    return configuration.parameters[name]


def table(head: list[str], rows: list[list[str]], figures: int) -> nodes.table:
    """Build a table of texts, of which so many columns, from the right, hold figures."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))

    def row(values: list[str]) -> nodes.row:
        classes = [["figure-cell"] if place >= len(values) - figures else [] for place in range(len(values))]
        cells = zip(values, classes, strict=True)
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", value), classes=kind) for value, kind in cells))

    group += nodes.thead("", row(head))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["measured"])


class Measured(RepositoryDirective):
    """What tables and plots have in common: which rows they show, and where these come from, one click away."""

    needed: ClassVar[tuple[str, ...]] = ()
    path: Path
    measurement: Measurement
    rows: list[Configuration]

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Read the file, choose the rows, and show them."""
        for name in self.needed:
            if name not in self.options:
                raise FileError(
                    f"the option {name!r} is missing; give {', '.join(f':{each}:' for each in self.needed)}"
                )
        self.path, self.measurement = path, read_measurement(path)
        where = conditions(self.options.get("where", "")).items()
        self.rows = [row for row in self.measurement.configurations if where <= row.parameters.items()]
        if not self.rows:
            raise FileError(f"no configuration has {self.options.get('where')}")
        yield from self.show()

    def show(self) -> Iterator[nodes.Node]:
        """Build the nodes."""
        raise NotImplementedError

    def quantities(self, option: str) -> list[str]:
        """Return the quantities that an option names, or else all, in the order in which they were measured.

        Raises:
            FileError: One was never measured.
        """
        known = list(dict.fromkeys(name for row in self.measurement.configurations for name in row.samples))
        chosen = words(self.options.get(option, "")) or known
        for name in chosen:
            if name not in known:
                raise FileError(f"no quantity {name!r}; measured were {', '.join(known)}")
        return chosen

    def details(self, summary: str, *parts: nodes.Node, text: str = "") -> nodes.Node:
        """Fold away what few readers need at once, with the command, date, machine, versions and raw data."""
        measurement = self.measurement
        machine = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in measurement.machine.items())
        versions = ", ".join(f"{name} {version}" for name, version in measurement.versions.items())
        source = line(
            f"{text} Measured {measurement.date} with ".lstrip(),
            nodes.literal("", measurement.command),
            f"; {machine}; {versions}. ",
            download(self.env, self.path, "Raw samples"),
            classes=["measured-source"],
        )
        return disclosure("", *parts, source, summary=summary, classes=["measured-details"])

    def pictures(self, data: Any, draw: Callable[[Path, str], None]) -> Iterator[nodes.image]:
        """Draw a plot for each theme, unless the same data was drawn before."""
        key = hashlib.sha256(repr((data, sorted(self.options.items()), PLOT)).encode()).hexdigest()[:12]
        for theme in PLOT:
            target = Path(self.env.doctreedir) / "plots" / f"{self.path.stem}-{key}-{theme}.svg"
            if not target.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                draw(target, theme)
            uri = "/" + Path(os.path.relpath(target, self.env.srcdir)).as_posix()
            yield nodes.image(uri=uri, alt=self.options["alt"], classes=[f"only-{theme}", "measured-plot"])


class MeasuredTable(Measured):
    """A table with a row for each configuration: medians, and folded below them ranges and numbers of samples."""

    option_spec: ClassVar = dict.fromkeys(("parameters", "quantities", "where"), directives.unchanged_required)

    def show(self) -> Iterator[nodes.Node]:
        """Build the table and its notes; fold ranges and source."""
        wanted = self.quantities("quantities")
        shown = [name for name in wanted if any(row.samples.get(name) for row in self.rows)]
        rows = [row for row in self.rows if any(row.samples.get(name) for name in shown)]
        names = words(self.options.get("parameters", ""))
        same: list[str] = []
        for name in list(names):
            values = {str(parameter(row, name)) for row in rows}
            if len(values) == 1 and len(rows) > 1:
                names.remove(name)
                same.append(f"{name.replace('_', ' ')} {values.pop()}")
        head = [*([name.replace("_", " ") for name in names] or ["configuration"]), *map(heading, shown)]
        labels = [[str(parameter(row, name)) for name in names] or [row.name] for row in rows]

        def filled(cell: Callable[[Configuration, str], str]) -> list[list[str]]:
            return [[*label, *(cell(row, name) for name in shown)] for label, row in zip(labels, rows, strict=True)]

        medians = filled(lambda row, name: number(row.median(name)) if row.samples.get(name) else "")
        yield table(head, medians, figures=len(shown))
        notes = [f"In all rows: {', '.join(same)}."] * bool(same)
        notes += ["Empty: not measured, or not applicable."] * any("" in row[-len(shown) :] for row in medians)
        if notes:
            yield line(" ".join(notes), classes=["measured-source"])

        counts = {len(samples) for row in rows for name in shown if (samples := row.samples.get(name))}
        if counts == {1}:
            yield self.details("One sample each. Machine, raw data")
            return
        ranges = table(head, filled(lambda row, name: range_of(row.samples.get(name, []))), figures=len(shown))
        of = f"Medians of {counts.pop()} samples" if len(counts) == 1 else "Medians"
        yield self.details(f"{of}. Ranges, numbers of samples, machine, raw data", ranges)


class MeasuredOutcomes(Measured):
    """A table of words: rows are trials, with a row for each value of one parameter; columns are those of another.

    Each line of the content names a trial, which is a parameter too, and what its rows are called: `full: Full disk`.
    """

    has_content = True
    needed = ("columns", "by")
    option_spec: ClassVar = dict.fromkeys(needed, directives.unchanged_required)

    def show(self) -> Iterator[nodes.Node]:
        """Build the table from the configurations that have both parameters, and fold the source."""
        column, by = self.options["columns"], self.options["by"]
        both = [row for row in self.rows if {column, by} <= row.parameters.keys()]
        found = {(row.parameters[column], row.parameters[by]): row for row in both}
        columns, values = ([*dict.fromkeys(keys)] for keys in zip(*found, strict=True))
        rows = []
        for content in self.content:
            name, _, label = content.partition(": ")
            for value in values:
                cells = [str(parameter(found[key, value], name)) if (key, value) in found else "" for key in columns]
                rows.append([label if value == values[0] else "", value, *cells])
        yield table(["", by, *columns], rows, figures=0)
        yield self.details("Machine, raw data")


class MeasuredPlot(Measured):
    """A plot of one quantity over one parameter, with a series for each value of another."""

    needed = ("x", "y", "alt")
    option_spec: ClassVar = {
        **dict.fromkeys((*needed, "series"), directives.unchanged_required),
        "log": lambda text: directives.choice(text, ("x", "xy")),
    }

    def show(self) -> Iterator[nodes.Node]:
        """Draw the plot for both themes, and fold its source."""
        (quantity,) = self.quantities("y")
        series: dict[str, list[tuple[float, list[float]]]] = {}
        for row in self.rows:
            if samples := row.samples.get(quantity):
                x = parameter(row, self.options["x"])
                if not isinstance(x, (int, float)):
                    raise FileError(f"{row.name!r}: the parameter {self.options['x']!r} is {x!r}, which is no number")
                name = str(parameter(row, self.options["series"])) if "series" in self.options else ""
                series.setdefault(name, []).append((x, samples))
        series = {name: sorted(points) for name, points in series.items()}

        def draw(target: Path, theme: str) -> None:
            import matplotlib
            from matplotlib.figure import Figure

            with matplotlib.rc_context({**plot_style(theme), "font.size": 11}):
                figure = Figure(figsize=(6.4, 3.6), layout="constrained")
                axes = figure.add_subplot()
                for index, (name, points) in enumerate(series.items()):
                    middles = [median(samples) for _, samples in points]
                    low = [middle - min(samples) for middle, (_, samples) in zip(middles, points, strict=True)]
                    high = [max(samples) - middle for middle, (_, samples) in zip(middles, points, strict=True)]
                    colour, marker = PLOT[theme][1 + index], "os^D"[index]
                    style: dict[str, Any] = {"label": name, "color": colour, "marker": marker, "capsize": 3}
                    axes.errorbar([x for x, _ in points], middles, yerr=[low, high], **style)
                axes.set(xlabel=heading(self.options["x"]), ylabel=heading(quantity))
                if "x" in self.options.get("log", ""):
                    axes.set_xscale("log", base=2)
                if "y" in self.options.get("log", ""):
                    axes.set_yscale("log")
                else:
                    axes.set_ylim(bottom=0)
                axes.grid(alpha=0.25)
                if "series" in self.options:
                    axes.legend(title=heading(self.options["series"]), frameon=False)
                axes.spines[["top", "right"]].set_visible(False)
                figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})

        yield from self.pictures(series, draw)
        yield self.details("Medians; bars reach from the smallest to the largest sample. Machine, raw data")


TABLES = {"strong": measurements.strong, "weak": measurements.weak}


class ScalingTable(Measured):
    """The picture for both themes, a table of the sizes, and what has to be said with them."""

    needed = ("kind", "alt")
    option_spec: ClassVar = {
        "kind": lambda text: directives.choice(text, tuple(TABLES)),
        **dict.fromkeys(("where", "alt"), directives.unchanged_required),
    }

    def show(self) -> Iterator[nodes.Node]:
        """Build picture, table and sentences; fold intervals and source."""
        made = TABLES[self.options["kind"]](self.measurement, where=conditions(self.options.get("where", "")))

        def draw(target: Path, theme: str) -> None:
            ink, colour, *_ = PLOT[theme]
            measurements.plot(made, target, colours=(ink, colour), transparent=True)

        yield from self.pictures(made, draw)
        head = [made.over, heading(made.quantity), "speed-up", "efficiency"]
        yield table(head, [cells(row) for row in made.rows], figures=4)
        yield line(" ".join(made.notes()), classes=["measured-source"])
        chosen = ", ".join(f"{name} {value}" for name, value in {**self.measurement.parameters, **made.where}.items())
        ends = [[*cells(row, ends=True), str(row.repeats)] for row in made.rows]
        yield self.details(
            "Intervals, repeats, machine, raw data",
            table([*head, "repeats"], ends, figures=5),
            text=f"With {chosen}." if chosen else "",
        )


def cells(row: measurements.Row, *, ends: bool = False) -> list[str]:
    """Write the cells of a row; the ends of each interval only where they are asked for.

    >>> one = measurements.Interval(1.0, 1.0, 1.0, 1.0)
    >>> half = measurements.Interval(0.5, 0.4, 0.6, 0.95)
    >>> cells(measurements.Row(2, 10, half, one, half)), cells(measurements.Row(2, 10, half, one, half), ends=True)
    (['2', '0.5', '1', '50%'], ['2', '0.5 [0.4, 0.6]', '1 [1, 1]', '50% [40%, 60%]'])
    """
    written = [str(row.count)]
    for found, percent in ((row.time, False), (row.speedup, False), (row.efficiency, True)):
        figures = [f"{100 * one:.0f}%" if percent else number(one) for one in (found.value, found.low, found.high)]
        written.append("{} [{}, {}]".format(*figures) if ends else figures[0])
    return written


class MeasuredFigure(SphinxRole):
    """Writes one figure into a sentence: the median of a quantity, with its unit or with the number of trials.

    Its text names file, configuration and quantity: `bench/results/checkpoint_kinds.json; Orbax; step_and_save_s`.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write the figure, or report what it lacks."""
        try:
            return [nodes.inline("", self.figure(), classes=["measured-figure"])], []
        except ValueError as error:
            message = self.inliner.reporter.error(f"measured: {error}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]

    def figure(self) -> str:
        """Return the text of the figure.

        Raises:
            FileError: A part of the text, the file, the configuration or the quantity is missing.
        """
        parts = [part.strip() for part in self.text.split(";")]
        if len(parts) != 3:
            raise FileError(f"{self.text!r} needs three parts: FILE; CONFIGURATION; QUANTITY")
        name, row, quantity = parts
        path = find(self.env, name)
        self.env.note_dependency(str(path))
        rows = {configuration.name: configuration for configuration in read_measurement(path).configurations}
        if row not in rows:
            raise FileError(f"no configuration {row!r}; measured were {'; '.join(rows)}")
        if quantity not in rows[row].samples:
            raise FileError(f"{row!r} has no quantity {quantity!r}; it has {', '.join(rows[row].samples)}")
        return with_unit(rows[row].median(quantity), quantity)


def setup(app: Sphinx) -> dict[str, bool | int]:
    """Register the directives and the role."""
    app.setup_extension("repository")
    app.add_directive("measured-table", MeasuredTable)
    app.add_directive("measured-outcomes", MeasuredOutcomes)
    app.add_directive("measured-plot", MeasuredPlot)
    app.add_directive("scaling-table", ScalingTable)
    app.add_role("measured", MeasuredFigure())
    version = 2  # of the tables and plots in doctrees kept from an earlier build
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": version}
