"""The node `disclosure`: content that one click opens."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


class disclosure(nodes.container):  # type: ignore[misc]  # noqa: N801 - docutils names nodes so
    """Content that one click opens; `summary` says what it is."""


def visit_disclosure(writer: HTML5Translator, node: disclosure) -> None:
    """Open a `details` element."""
    writer.body.append(writer.starttag(node, "details"))
    writer.body.append(f"<summary>{html.escape(node['summary'])}</summary>\n")


def depart_disclosure(writer: HTML5Translator, node: disclosure) -> None:  # noqa: ARG001 - Sphinx gives both
    """Close it."""
    writer.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the node."""
    app.add_node(disclosure, html=(visit_disclosure, depart_disclosure))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
