"""Puts a colon between the name of a parameter and what it is, where docutils puts two hyphens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def replace_hyphens(_app: Sphinx, doctree: nodes.document) -> None:
    """Replace the separator in the field lists of API pages."""
    for field_list in doctree.findall(nodes.field_list):
        for text in list(field_list.findall(nodes.Text)):
            if text.astext() == " -- ":
                text.parent.replace(text, nodes.Text(": "))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the replacement."""
    app.connect("doctree-read", replace_hyphens)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
