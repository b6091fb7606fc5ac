"""The directive `measured-plot`, and what all directives share that draw figures from raw samples."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from colours import PLOT
from disclosure import disclosure
from docutils import nodes
from docutils.parsers.rst import directives
from repository import FileError, RepositoryDirective, download, line

from srunbook.measurements import Configuration, Measurement, read_measurement

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


def quantities(measurement: Measurement, option: str | None) -> list[str]:
    """Return the quantities to show: those named, else all, in the order in which they were measured.

    Raises:
        FileError: One was never measured.
    """
    known = list(dict.fromkeys(name for configuration in measurement.configurations for name in configuration.samples))
    chosen = words(option) if option else known
    for name in chosen:
        if name not in known:
            raise FileError(f"no quantity {name!r}; measured were {', '.join(known)}")
    return chosen


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


def conditions(option: str) -> dict[str, Any]:
    """Read parameters such as `link=300mbit, batch=64`.

    Raises:
        FileError: One has no value.

    >>> conditions("link=300mbit, batch=64")
    {'link': '300mbit', 'batch': 64}
    """
    found: dict[str, Any] = {}
    for word in words(option):
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise FileError(f"{word!r} is no parameter with a value, as in `:where: link=300mbit, batch=64`")
        found[name] = int(value) if value.isdigit() else value
    return found


class Measured(RepositoryDirective):
    """What tables and plots have in common: where the figures come from, one click away."""

    def details(self, summary: str, *parts: nodes.Node) -> nodes.Node:
        """Fold away what few readers need at once."""
        return disclosure("", *parts, summary=summary, classes=["measured-details"])

    def source(self, path: Path, measurement: Measurement, text: str) -> nodes.paragraph:
        """Write the command, date, machine and versions, and link the raw data."""
        machine = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in measurement.machine.items())
        versions = ", ".join(f"{name} {version}" for name, version in measurement.versions.items())
        return line(
            f"{text} Measured {measurement.date} with ".lstrip(),
            nodes.literal("", measurement.command),
            f"; {machine}; {versions}. ",
            download(self.env, path, "Raw samples"),
            classes=["measured-source"],
        )

    def pictures(
        self, path: Path, data: Any, paint: Callable[[Path, Any, dict[str, str], str], None]
    ) -> Iterator[nodes.image]:
        """Draw a plot for each theme, unless the same data was drawn before."""
        key = hashlib.sha256(repr((data, sorted(self.options.items()), PLOT)).encode()).hexdigest()[:12]
        for theme in PLOT:
            target = Path(self.env.doctreedir) / "plots" / f"{path.stem}-{key}-{theme}.svg"
            if not target.is_file():
                paint(target, data, self.options, theme)
            uri = "/" + Path(os.path.relpath(target, self.env.srcdir)).as_posix()
            yield nodes.image(uri=uri, alt=self.options["alt"], classes=[f"only-{theme}", "measured-plot"])


class MeasuredPlot(Measured):
    """A plot of one quantity over one parameter, with a series for each value of another."""

    option_spec: ClassVar = {
        "x": directives.unchanged_required,
        "y": directives.unchanged_required,
        "series": directives.unchanged_required,
        "log": lambda text: directives.choice(text, ("x", "y", "xy")),
        "alt": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Draw the plot for both themes, and fold its source."""
        for option in ("x", "y", "alt"):
            if option not in self.options:
                raise FileError(
                    f"the option {option!r} is missing, as in `:x: nodes`, `:y: wall_s`, `:alt: what it shows`"
                )
        measurement = read_measurement(path)
        lines = series(measurement, self.options["x"], self.options["y"], self.options.get("series"))
        yield from self.pictures(path, lines, draw)
        source = self.source(path, measurement, "")
        yield self.details("Medians; bars reach from the smallest to the largest sample. Machine, raw data", source)


Line = tuple[str, list[tuple[float, float, float, float]]]
"""A series: its name, and for each point x, median, smallest and largest sample."""


def series(measurement: Measurement, x: str, y: str, by: str | None) -> list[Line]:
    """Sort the samples into series.

    Raises:
        FileError: A parameter or quantity is not there, or x is no number.
    """
    quantities(measurement, y)
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for configuration in measurement.configurations:
        samples = configuration.samples.get(y)
        if samples is None:
            continue
        at = parameter(configuration, x)
        if isinstance(at, bool) or not isinstance(at, (int, float)):
            raise FileError(f"{configuration.name!r}: the parameter {x!r} is {at!r}, which is no number to plot over")
        name = str(parameter(configuration, by)) if by else ""
        lines.setdefault(name, []).append((float(at), configuration.median(y), min(samples), max(samples)))
    return [(name, sorted(points)) for name, points in lines.items()]


def draw(target: Path, lines: list[Line], options: dict[str, str], theme: str) -> None:
    """Draw the series over the parameter."""
    with axes_of(target, theme) as (axes, colours):
        for index, (name, points) in enumerate(lines):
            xs, medians, smallest, largest = zip(*points, strict=True)
            below = [median - low for median, low in zip(medians, smallest, strict=True)]
            above = [high - median for median, high in zip(medians, largest, strict=True)]
            marker = "os^Dv"[index % 5]
            axes.errorbar(
                xs,
                medians,
                yerr=[below, above],
                label=name,
                color=colours[index % len(colours)],
                marker=marker,
                capsize=3,
            )
        axes.set_xlabel(heading(options["x"]))
        axes.set_ylabel(heading(options["y"]))
        if "x" in options.get("log", ""):
            axes.set_xscale("log", base=2)
        if "y" in options.get("log", ""):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        if "series" in options:
            axes.legend(title=heading(options["series"]), frameon=False)


@contextmanager
def axes_of(target: Path, theme: str, height: float = 3.6) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Lend axes and the colours of the series; write a transparent SVG in the colours of a theme.

    Args:
        target: The file.
        theme: One of `PLOT`.
        height: Of the figure, in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    text, *colours = PLOT[theme]
    rc: dict[Any, Any] = {
        "svg.hashsalt": "srunbook",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 11,
    }
    rc |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), text)
    with matplotlib.rc_context(rc):
        figure = Figure(figsize=(6.4, height), layout="constrained")
        axes = figure.add_subplot()
        yield axes, tuple(colours)
        axes.spines[["top", "right"]].set_visible(False)
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})


def setup(app: Sphinx) -> dict[str, bool | int]:
    """Register the directives."""
    app.setup_extension("repository")
    app.setup_extension("disclosure")
    app.setup_extension("measured_tables")
    app.setup_extension("measured_bars")
    app.add_directive("measured-plot", MeasuredPlot)
    version = 2  # of the tables and plots in doctrees kept from an earlier build
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": version}
