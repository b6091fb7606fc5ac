"""Loads style and program of the form about memory on the pages that have a `memory-calculator`, and on no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CLASS = "memory-calculator"


def load(app: Sphinx, _name: str, _template: str, _context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Add the files to a page with such a container."""
    if doctree and any(CLASS in box["classes"] for box in doctree.findall(nodes.container)):
        app.add_css_file("memory.css")
        app.add_js_file("js/memory.js", type="module")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the change."""
    app.connect("html-page-context", load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
