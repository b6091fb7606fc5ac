"""Lets the copy button take a file whole: sphinx-copybutton leaves out the end of the last line, always."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

FUNCTIONS = "copybutton_format_func"
"""Where sphinx-copybutton keeps the functions that its script calls, `filterText` before `formatCopyText`."""

WHOLE = """
// A copied file ends as the file does; a copied command has no end of line, which would run it when it is pasted.
const filteredText = filterText;
filterText = (target, exclude) => filteredText(target, exclude) + (target.closest(".code-file") ? "\\n" : "");
"""
"""`formatCopyText` takes one end of line away, so that of a file gets one more."""


def keep_last_line(_app: Sphinx, config: Config) -> None:
    """Add to the functions of the copy buttons."""
    config.html_context[FUNCTIONS] += WHOLE


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the change, after that of sphinx-copybutton."""
    app.setup_extension("sphinx_copybutton")
    app.connect("config-inited", keep_last_line, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
