"""The directives `measured-table`, medians from raw samples, and `measured-outcomes`, what came of each trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from measured import Measured, conditions, heading, number, parameter, quantities, words
from repository import FileError, line

from srunbook.measurements import Configuration, read_measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sphinx.application import Sphinx


class MeasuredTable(Measured):
    """A table with a row for each configuration: medians, and folded below them ranges and numbers of samples."""

    option_spec: ClassVar = {
        "parameters": directives.unchanged_required,
        "quantities": directives.unchanged_required,
        "where": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build the table and its notes; fold ranges and source."""
        measurement = read_measurement(path)
        where = conditions(self.options.get("where", ""))
        found = [part for part in measurement.configurations if where.items() <= part.parameters.items()]
        if not found:
            raise FileError(f"no configuration has {self.options['where']}")
        wanted = quantities(measurement, self.options.get("quantities"))
        shown = [name for name in wanted if any(part.samples.get(name) for part in found)]
        chosen = [part for part in found if any(part.samples.get(name) for name in shown)]
        names, same = split(words(self.options.get("parameters", "")), chosen)
        labels = [[str(parameter(part, name)) for name in names] or [part.name] for part in chosen]
        head = [*([name.replace("_", " ") for name in names] or ["configuration"]), *map(heading, shown)]

        figures = [[median(part, name) for name in shown] for part in chosen]
        yield table(head, [[*label, *row] for label, row in zip(labels, figures, strict=True)], figures=len(shown))
        notes = [f"In all rows: {', '.join(same)}."] * bool(same)
        notes += ["Empty: not measured, or not applicable."] * any("" in row for row in figures)
        if notes:
            yield line(" ".join(notes), classes=["measured-source"])

        source = self.source(path, measurement, "")
        counts = {len(samples) for part in chosen for name in shown if (samples := part.samples.get(name))}
        if counts == {1}:
            yield self.details("One sample each. Machine, raw data", source)
            return
        ranges = [[spread(part, name) for name in shown] for part in chosen]
        whole = table(head, [[*label, *row] for label, row in zip(labels, ranges, strict=True)], figures=len(shown))
        of = f"Medians of {counts.pop()} samples" if len(counts) == 1 else "Medians"
        yield self.details(f"{of}. Ranges, numbers of samples, machine, raw data", whole, source)


class MeasuredOutcomes(Measured):
    """A table of words: rows are trials, with a row for each value of one parameter; columns are those of another.

    Each line of the content names a trial, which is a parameter too, and what its rows are called: `full: Full disk`.
    """

    has_content = True
    option_spec: ClassVar = {
        "columns": directives.unchanged_required,
        "by": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build the table from the configurations that have both parameters, and fold the source."""
        measurement = read_measurement(path)
        column, by = self.options["columns"], self.options["by"]
        found = {
            (part.parameters[column], part.parameters[by]): part
            for part in measurement.configurations
            if {column, by} <= part.parameters.keys()
        }
        if not found:
            raise FileError(f"no configuration has both {column!r} and {by!r}")
        columns, values = ([*dict.fromkeys(keys)] for keys in zip(*found, strict=True))
        rows = []
        for content in self.content:
            name, _, label = content.partition(": ")
            for value in values:
                cells = [str(parameter(found[key, value], name)) if (key, value) in found else "" for key in columns]
                rows.append([label if value == values[0] else "", value, *cells])
        yield table(["", by, *columns], rows, figures=0)
        yield self.details("Machine, raw data", self.source(path, measurement, ""))


def split(names: list[str], chosen: list[Configuration]) -> tuple[list[str], list[str]]:
    """Part the parameters that tell rows apart from those that are the same in all, written with their value."""
    values = {name: {str(parameter(part, name)) for part in chosen} for name in names}
    same = [name for name in names if len(values[name]) == 1 and len(chosen) > 1]
    apart = [name for name in names if name not in same]
    return apart, [f"{name.replace('_', ' ')} {values[name].pop()}" for name in same]


def median(configuration: Configuration, quantity: str) -> str:
    """Write the median of a series; nothing where there are no samples."""
    return number(configuration.median(quantity)) if configuration.samples.get(quantity) else ""


def spread(configuration: Configuration, quantity: str) -> str:
    """Write the smallest and the largest sample of a series, and how many there are."""
    samples = configuration.samples.get(quantity)
    return ranged(samples) if samples else ""


def ranged(samples: list[float]) -> str:
    """Write the range of some samples, and their number.

    >>> ranged([1.0, 2.0, 4.0]), ranged([2.0])
    ('1 to 4, n=3', '2, n=1')
    """
    low, high = number(min(samples)), number(max(samples))
    return f"{low if low == high else f'{low} to {high}'}, n={len(samples)}"


def table(head: list[str], rows: list[list[str]], figures: int) -> nodes.table:
    """Build a table of texts.

    Args:
        head: The heading of each column.
        rows: The cells of each row.
        figures: The number of columns, from the right, that hold figures.
    """
    group = nodes.tgroup(cols=len(head))
    for _ in head:
        group += nodes.colspec(colwidth=1)

    def row(values: list[str]) -> nodes.row:
        built = nodes.row()
        for position, value in enumerate(values):
            entry = nodes.entry(classes=["figure-cell"] if position >= len(values) - figures else [])
            entry += nodes.paragraph("", value)
            built += entry
        return built

    group += nodes.thead("", row(head))
    body = nodes.tbody()
    for values in rows:
        body += row(values)
    group += body
    whole = nodes.table(classes=["measured"])
    whole += group
    return whole


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("measured-table", MeasuredTable)
    app.add_directive("measured-outcomes", MeasuredOutcomes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
