"""The role `measured`: one figure of a measurement within a sentence or the cell of a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from measured import UNITS, number
from repository import FileError, find
from sphinx.util.docutils import SphinxRole

from srunbook.measurements import read_measurement

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class MeasuredFigure(SphinxRole):
    """Writes one figure into a sentence: the median of a quantity, with its unit or with the number of trials.

    Its text names file, configuration and quantity: `bench/results/checkpoint_kinds.json; Orbax; step_and_save_s`.
    """

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write the figure, or report what it lacks."""
        try:
            return [nodes.inline("", self.figure(*self.parts()), classes=["measured-figure"])], []
        except ValueError as error:
            message = self.inliner.reporter.error(f"measured: {error}", line=self.lineno)
            return [self.inliner.problematic(self.rawtext, self.rawtext, message)], [message]

    def parts(self) -> tuple[str, str, str]:
        """Split the text of the role.

        Raises:
            FileError: It does not have three parts.
        """
        parts = [part.strip() for part in self.text.split(";")]
        if len(parts) != 3:
            raise FileError(f"{self.text!r} needs three parts: FILE; CONFIGURATION; QUANTITY")
        return parts[0], parts[1], parts[2]

    def figure(self, name: str, row: str, quantity: str) -> str:
        """Return the text of a figure.

        Raises:
            FileError: The file, the configuration or the quantity is missing.
        """
        path = find(self.env, name)
        self.env.note_dependency(str(path))
        rows = {configuration.name: configuration for configuration in read_measurement(path).configurations}
        if row not in rows:
            raise FileError(f"no configuration {row!r}; measured were {'; '.join(rows)}")
        samples = rows[row].samples
        if quantity not in samples:
            raise FileError(f"{row!r} has no quantity {quantity!r}; it has {', '.join(samples)}")
        return with_unit(rows[row].median(quantity), quantity)


def with_unit(value: float, quantity: str) -> str:
    """Write a figure with the unit, or with the number of trials, that the name of its quantity ends with.

    >>> with_unit(28.0, "survived_of_30"), with_unit(0.2731, "stall_s"), with_unit(8.0, "nodes")
    ('28 of 30', '0.273 s', '8')
    """
    trials = re.search(r"_of_(\d+)$", quantity)
    if trials:
        return f"{number(value)} of {trials[1]}"
    unit = UNITS.get(quantity.rpartition("_")[2])
    return f"{number(value)} {unit}" if unit else number(value)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role."""
    app.setup_extension("repository")
    app.add_role("measured", MeasuredFigure())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
