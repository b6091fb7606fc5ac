"""Figures from raw samples: the tables and plots of pages, and single figures in their sentences.

`measured-table` shows medians, `measured-plot` and `measured-bars` a picture, `scaling-table` strong or weak scaling.
The role `measured` writes one figure. Ranges, machine and raw data are one click away: below the table, or at the end
of a page with several tables.
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
from repository import FileError, RepositoryDirective, disclosure, download, find, known, line
from sphinx.util.docutils import SphinxRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sphinx.application import Sphinx

UNITS = {
    "s": "s",
    "ms": "ms",
    "us": "µs",
    "MB": "MB",
    "GB": "GB",
    "MBps": "MB/s",
    "GBps": "GB/s",
    "GiB": "GiB",
    "MiB": "MiB",
    "percent": "%",
    "tokensps": "tokens/s",
    "imagesps": "images/s",
    "TFLOPps": "TFLOP/s",
}
"""How the last part of a quantity's name is written as a unit: `wall_s` is `wall (s)`."""


def words(option: str) -> list[str]:
    """Split an option such as `nodes, tasks`."""
    return [word.strip() for word in option.split(",") if word.strip()]


def heading(quantity: str) -> str:
    """Write a quantity with its unit, such as `wall (s)`."""
    name, _, unit = quantity.rpartition("_")
    return f"{name.replace('_', ' ')} ({UNITS[unit]})" if name and unit in UNITS else quantity.replace("_", " ")


def number(value: float) -> str:
    """Write a whole figure, or three significant digits.

    >>> number(0.012345), number(3.14159), number(1234.5), number(8)
    ('0.0123', '3.14', '1230', '8')
    """
    rounded = value if value == int(value) else float(f"{value:.3g}")
    return f"{rounded:.6g}"


def with_unit(value: float, quantity: str) -> str:
    """Write a figure with the unit, or with the number of trials, that the name of its quantity ends with."""
    trials = re.search(r"_of_(\d+)$", quantity)
    if trials:
        return f"{number(value)} of {trials[1]}"
    return f"{number(value)} {UNITS.get(quantity.rpartition('_')[2], '')}".rstrip()


def range_of(samples: list[float]) -> str:
    """Write the range of some samples, and their number."""
    if not samples:
        return ""
    low, high = number(min(samples)), number(max(samples))
    return f"{low if low == high else f'{low} to {high}'}, n={len(samples)}"


def conditions(option: str) -> dict[str, Any]:
    """Read parameters such as `link=300mbit, batch=64`."""
    pairs = (word.partition("=") for word in words(option))
    return {name: int(value) if value.isdigit() else value for name, _, value in pairs}


def table(head: list[str], rows: list[list[str]], figures: int) -> nodes.table:
    """Build a table of texts, of which so many columns, from the right, hold figures."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    classes: list[list[str]] = [[]] * (len(head) - figures) + [["figure-cell"]] * figures

    def row(values: list[str]) -> nodes.row:
        cells = zip(values, classes, strict=True)
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", value), classes=kind) for value, kind in cells))

    group += nodes.thead("", row(head))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["measured"])


class Measured(RepositoryDirective):
    """What tables and plots have in common: which rows they show, and where these come from, one click away."""

    path: Path
    measurement: Measurement
    rows: list[Configuration]

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Read the file, choose the rows, and show them."""
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
        """Return the quantities that an option names, or else all, in the order in which they were measured."""
        measured = {name: name for row in self.measurement.configurations for name in row.samples}
        return [known(measured, name, "quantity") for name in words(self.options.get(option, "")) or measured]

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
        head = [*([name.replace("_", " ") for name in names] or ["configuration"]), *map(heading, shown)]
        labels = [[str(known(row.parameters, name, "parameter")) for name in names] or [row.name] for row in rows]

        def filled(cell: Callable[[Configuration, str], str]) -> list[list[str]]:
            return [[*label, *(cell(row, name) for name in shown)] for label, row in zip(labels, rows, strict=True)]

        medians = filled(lambda row, name: number(row.median(name)) if row.samples.get(name) else "")
        yield table(head, medians, figures=len(shown))
        if any("" in row[-len(shown) :] for row in medians):
            yield line("Empty: not measured, or not applicable.", classes=["measured-source"])

        counts = {len(samples) for row in rows for name in shown if (samples := row.samples.get(name))}
        if counts == {1}:
            yield self.details("One sample each. Machine, raw data")
            return
        ranges = table(head, filled(lambda row, name: range_of(row.samples.get(name, []))), figures=len(shown))
        of = f"Medians of {counts.pop()} samples" if len(counts) == 1 else "Medians"
        yield self.details(f"{of}. Ranges, numbers of samples, machine, raw data", ranges)


class MeasuredPlot(Measured):
    """A plot of one quantity over one parameter, with a series for each value of another."""

    needed = ("x", "y", "alt")
    option_spec: ClassVar = {
        **dict.fromkeys((*needed, "series"), directives.unchanged_required),
        "log": directives.flag,
    }

    def show(self) -> Iterator[nodes.Node]:
        """Draw the plot for both themes, and fold its source."""
        (quantity,) = self.quantities("y")
        by = self.options.get("series")
        series: dict[str, list[tuple[float, float, float, float]]] = {}
        for row in self.rows:
            if samples := row.samples.get(quantity):
                x = float(known(row.parameters, self.options["x"], "parameter"))
                name = str(known(row.parameters, by, "parameter")) if by else ""
                middle = median(samples)
                series.setdefault(name, []).append((x, middle, middle - min(samples), max(samples) - middle))

        def draw(target: Path, theme: str) -> None:
            import matplotlib
            from matplotlib.figure import Figure

            with matplotlib.rc_context({**plot_style(theme), "font.size": 11}):
                figure = Figure(figsize=(6.4, 3.6), layout="constrained")
                axes = figure.add_subplot()
                for index, (name, points) in enumerate(series.items()):
                    x, middles, below, above = zip(*sorted(points), strict=True)
                    axes.errorbar(x, middles, yerr=[below, above], label=name, marker="os^D"[index], capsize=3)
                axes.set(xlabel=heading(self.options["x"]), ylabel=heading(quantity))
                axes.set_xscale("log", base=2)
                if "log" in self.options:
                    axes.set_yscale("log")
                else:
                    axes.set_ylim(bottom=0)
                axes.grid(alpha=0.25)
                if by:
                    axes.legend(title=heading(by))
                figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})

        yield from self.pictures(series, draw)
        yield self.details("Medians; bars reach from the smallest to the largest sample. Machine, raw data")


class MeasuredBars(Measured):
    """A bar for each configuration: the medians of several quantities of one unit, one after the other."""

    needed = ("alt",)
    option_spec: ClassVar = dict.fromkeys((*needed, "quantities", "where"), directives.unchanged_required)

    def show(self) -> Iterator[nodes.Node]:
        """Draw the bars for both themes, and fold their source."""
        wanted = self.quantities("quantities")
        bars = {row.name: [row.median(name) for name in wanted] for row in self.rows}

        def draw(target: Path, theme: str) -> None:
            import matplotlib
            from matplotlib.figure import Figure

            with matplotlib.rc_context({**plot_style(theme), "font.size": 11}):
                figure = Figure(figsize=(6.4, 1.1 + 0.28 * len(bars)), layout="constrained")
                axes = figure.add_subplot()
                left = [0.0] * len(bars)
                for index, name in enumerate(wanted):
                    widths = [values[index] for values in bars.values()]
                    colour = f"C{index}" if index < len(PLOT[theme]) - 1 else "0.65"
                    axes.barh([*bars], widths, left=left, label=name.rpartition("_")[0], color=colour)
                    left = [start + width for start, width in zip(left, widths, strict=True)]
                axes.invert_yaxis()
                axes.set_xlabel(UNITS[wanted[0].rpartition("_")[2]])
                figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(wanted))
                figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})

        yield from self.pictures(bars, draw)
        yield self.details("Medians. Ranges, numbers of samples, machine, raw data")


class ScalingTable(Measured):
    """The picture for both themes, a table of the sizes, and what has to be said with them, once on a page."""

    needed = ("kind", "alt")
    option_spec: ClassVar = {
        "kind": lambda text: directives.choice(text, ("strong", "weak")),
        **dict.fromkeys(("where", "alt"), directives.unchanged_required),
    }

    def show(self) -> Iterator[nodes.Node]:
        """Build picture, table and sentences; fold intervals and source."""
        make = measurements.strong if self.options["kind"] == "strong" else measurements.weak
        scaling = make(self.measurement, where=conditions(self.options.get("where", "")))

        def draw(target: Path, theme: str) -> None:
            ink, colour, *_ = PLOT[theme]
            measurements.plot(scaling, target, colours=(ink, colour), transparent=True)

        yield from self.pictures(scaling, draw)
        head = [scaling.over, heading(scaling.quantity), "speed-up", "efficiency"]
        yield table(head, [cells(row) for row in scaling.rows], figures=4)
        said = self.env.temp_data.get("scaling-notes") or set()  # of this page
        if notes := [note for note in scaling.notes() if note not in said]:
            yield line(" ".join(notes), classes=["measured-source"])
        self.env.temp_data["scaling-notes"] = {*said, *notes}
        shared = {**self.measurement.parameters, **scaling.where}
        chosen = ", ".join(f"{name} {value}" for name, value in shared.items())
        ends = [[*cells(row, ends=True), str(row.repeats)] for row in scaling.rows]
        yield self.details(
            "Intervals, repeats, machine, raw data",
            table([*head, "repeats"], ends, figures=5),
            text=f"With {chosen}." if chosen else "",
        )


def cells(row: measurements.Row, *, ends: bool = False) -> list[str]:
    """Write the cells of a row; the ends of each interval only where they are asked for."""
    written = [str(row.count)]
    for interval, percent in ((row.time, False), (row.speedup, False), (row.efficiency, True)):
        values = (interval.value, interval.low, interval.high)
        figures = [f"{100 * value:.0f}%" if percent else number(value) for value in values]
        written.append("{} [{}, {}]".format(*figures) if ends else figures[0])
    return written


class MeasuredFigure(SphinxRole):
    """Writes one figure into a sentence: the median of a quantity, with its unit or with the number of trials.

    Its text names file, configuration and quantity: `bench/results/checkpoint_kinds.json; Orbax; step_and_save_s`.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write the figure, or report what it lacks."""
        try:
            parts = [part.strip() for part in self.text.split(";")]
            if len(parts) != 3:
                raise FileError(f"{self.text!r} needs three parts: FILE; CONFIGURATION; QUANTITY")
            path = find(self.env, parts[0])
            self.env.note_dependency(str(path))
            samples = {row.name: row.samples for row in read_measurement(path).configurations}
            values = known(known(samples, parts[1], "configuration"), parts[2], "quantity")
            return [nodes.inline("", with_unit(median(values), parts[2]), classes=["measured-figure"])], []
        except ValueError as error:
            message = self.inliner.reporter.error(f"measured: {error}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]


def gather_details(_app: Sphinx, doctree: nodes.document) -> None:
    """On a page with several tables, move all details into one fold at its end, and link to them from each table."""
    folded = [part for part in doctree.findall(disclosure) if "measured-details" in part["classes"]]
    if len(folded) < 2:
        return
    together = disclosure("", summary="Ranges, machines and raw data of this page", classes=["measured-details"])
    for number, part in enumerate(folded, 1):
        section = part
        while not isinstance(section, nodes.section):
            section = section.parent
        title = nodes.strong("", f"{number}. {section[0].astext()}")
        said, _, about = part["summary"].rpartition(". ")
        link = nodes.reference("", about, internal=True, refid=f"measured-{number}")
        together += nodes.paragraph("", "", title, ids=[link["refid"]])
        together.extend(part.children)
        part.replace_self(line(f"{said}. " if said else "", link, classes=["measured-source"]))
    page = next(doctree.findall(nodes.section))
    last = page[-1] if isinstance(page[-1], nodes.section) else page
    place = next((at for at, node in enumerate(last) if node.astext().startswith("Next: ")), len(last))
    last.insert(place, together)


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directives and the role."""
    app.setup_extension("repository")
    app.connect("doctree-read", gather_details)
    app.add_directive("measured-table", MeasuredTable)
    app.add_directive("measured-plot", MeasuredPlot)
    app.add_directive("measured-bars", MeasuredBars)
    app.add_directive("scaling-table", ScalingTable)
    app.add_role("measured", MeasuredFigure())
    return {"env_version": 4}  # of the tables and plots in doctrees kept from an earlier build
