"""Loads what only the first page needs: its style sheet, and the script that turns its table into a chooser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def load(app: Sphinx, page: str, *_rest: object) -> None:
    """Add the files to the first page alone."""
    if page == app.config.root_doc:
        app.add_css_file("home.css")
        app.add_js_file("js/chooser.js", type="module")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the change."""
    app.connect("html-page-context", load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
