"""The picture of a table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from srunbook.measurements._statistics import Interval
from srunbook.measurements._table import Table

COLOURS = ("#1c1917", "#0b63a5")
"""Of the text, and of what was measured."""


def plot(table: Table, path: Path, *, colours: tuple[str, str] = COLOURS, transparent: bool = False) -> None:
    """Draw speed-up and efficiency with their intervals, beside what would be ideal.

    The file is written whole, and is the same for the same table. Needs matplotlib.

    Args:
        table: The table.
        path: Where to write; the ending says what: `.svg`, `.png`. Its folder exists.
        colours: Colour of the text, and of what was measured.
        transparent: Whether the ground shows through.

    Raises:
        ValueError: matplotlib does not know the ending.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    text, colour = colours
    rc: dict[Any, Any] = {"svg.hashsalt": "srunbook", "svg.fonttype": "none", "font.family": "sans-serif"}
    rc |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), text)
    with mpl.rc_context(rc):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        counts = [row.count for row in table.rows]
        ideal = [count / counts[0] for count in counts]
        _draw(left, counts, [row.speedup for row in table.rows], ideal, "speed-up", colour)
        _draw(right, counts, [row.efficiency for row in table.rows], [1.0 for _ in counts], "efficiency", colour)
        for axes in (left, right):
            axes.set_xlabel(table.over)
            axes.set_xticks(counts)
            axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        figure.suptitle(f"{table.kind} scaling, base {table.sized(table.base.count)}", fontsize="medium")
        ending = path.suffix.removeprefix(".") or "svg"
        stream = io.BytesIO()
        metadata = {"Date": None} if ending == "svg" else {}
        figure.savefig(stream, format=ending, metadata=metadata, transparent=transparent)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(stream.getvalue())
    temporary.replace(path)


def _draw(axes: Any, counts: list[int], intervals: list[Interval], ideal: list[float], name: str, colour: str) -> None:
    below = [interval.value - interval.low for interval in intervals]
    above = [interval.high - interval.value for interval in intervals]
    axes.plot(counts, ideal, linestyle="--", color="0.5", label="ideal")
    axes.errorbar(
        counts,
        [interval.value for interval in intervals],
        yerr=[below, above],
        marker="o",
        capsize=4,
        color=colour,
        label="measured",
    )
    axes.set_ylabel(name)
    axes.legend(frameon=False)
