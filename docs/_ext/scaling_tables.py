"""The directive `scaling-table`: a table of strong or weak scaling from raw samples, below its picture."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from colours import PLOT
from docutils import nodes
from docutils.parsers.rst import directives
from measured import Measured, conditions, heading, number
from measured_tables import table
from repository import FileError, line

from srunbook import measurements
from srunbook.measurements import read_measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sphinx.application import Sphinx

TABLES = {"strong": measurements.strong, "weak": measurements.weak}


def plain(found: measurements.Interval, *, percent: bool = False) -> str:
    """Write a figure alone.

    >>> plain(measurements.Interval(0.5, 0.4, 0.6, 0.95), percent=True)
    '50%'
    """
    return f"{100 * found.value:.0f}%" if percent else number(found.value)


def interval(found: measurements.Interval, *, percent: bool = False) -> str:
    """Write a figure with its interval.

    >>> interval(measurements.Interval(1.8, 1.7, 1.9, 0.95))
    '1.8 [1.7, 1.9]'
    >>> interval(measurements.Interval(0.5, 0.5, 0.5, 0.95), percent=True)
    '50% [50%, 50%]'
    """
    value, low, high = (
        f"{100 * item:.0f}%" if percent else number(item) for item in (found.value, found.low, found.high)
    )
    return f"{value} [{low}, {high}]"


class ScalingTable(Measured):
    """The picture for both themes, a table of the sizes, and what has to be said with them."""

    option_spec: ClassVar = {
        "kind": lambda text: directives.choice(text, tuple(TABLES)),
        "over": directives.unchanged_required,
        "quantity": directives.unchanged_required,
        "where": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build picture, table and sentences; fold intervals and source."""
        for option in ("kind", "alt"):
            if option not in self.options:
                raise FileError(f"the option {option!r} is missing, as in `:kind: strong`, `:alt: what it shows`")
        measurement = read_measurement(path)
        made = TABLES[self.options["kind"]](
            measurement,
            over=self.options.get("over", "nodes"),
            quantity=self.options.get("quantity", "step_s"),
            where=conditions(self.options.get("where", "")),
        )
        key = hashlib.sha256(repr((made, PLOT)).encode()).hexdigest()[:12]
        for theme, (ink, colour, *_) in PLOT.items():
            target = Path(self.env.doctreedir) / "plots" / f"{path.stem}-{made.kind}-{key}-{theme}.svg"
            if not target.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                measurements.plot(made, target, colours=(ink, colour), transparent=True)
            uri = "/" + Path(os.path.relpath(target, self.env.srcdir)).as_posix()
            yield nodes.image(uri=uri, alt=self.options["alt"], classes=[f"only-{theme}", "measured-plot"])
        head = [made.over, heading(made.quantity), "speed-up", "efficiency"]
        yield table(head, [row_of(row, plain) for row in made.rows], figures=4)
        yield line(" ".join(made.notes()), classes=["measured-source"])
        chosen = ", ".join(f"{name} {value}" for name, value in {**measurement.parameters, **made.where}.items())
        repeats = [[*row_of(row, interval), str(row.repeats)] for row in made.rows]
        yield self.details(
            "Intervals, repeats, machine, raw data",
            table([*head, "repeats"], repeats, figures=5),
            self.source(path, measurement, f"With {chosen}." if chosen else ""),
        )


def row_of(row: measurements.Row, written: Callable[..., str]) -> list[str]:
    """Write the cells of a row, each figure as `written` does."""
    return [
        str(row.count),
        written(row.time),
        written(row.speedup),
        written(row.efficiency, percent=True),
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.setup_extension("measured")
    app.add_directive("scaling-table", ScalingTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
