"""The directive `paste-box`: where a reader pastes a log, and reads what `srunbook explain` would say of it.

Its content is what the page shows without JavaScript. What the box works with, `_static/explain-data.js`, loads when
somebody uses it. It is a script, so that it also loads from a disk.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import explain_rules
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from srunbook._files import write_whole
from srunbook.explain import load_entries
from srunbook.explain._entries import load_ordinary

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CLASS = "paste-box"
DATA = "_static/explain-data.js"


class PasteBox(SphinxDirective):
    """Shows its content, which JavaScript replaces with the box."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make a container of the content."""
        return [nodes.container("", *self.parse_content_to_nodes(), classes=[CLASS], is_div=True)]


def load(app: Sphinx, _name: str, _template: str, _context: object, doctree: nodes.document | None) -> None:
    """Load style and program on the pages that have the box, and on no other."""
    if doctree and any(CLASS in box["classes"] for box in doctree.findall(nodes.container)):
        app.add_css_file("paste-box.css")
        app.add_js_file("js/explain-box.js", defer="defer")


def write_data(app: Sphinx, error: Exception | None) -> None:
    """Write what the box works with, into a site that was built."""
    if error or app.builder.format != "html":
        return
    made = explain_rules.rules(load_entries(), load_ordinary())
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    write_whole(Path(app.outdir, DATA), f"globalThis.explainData = {text};\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and what it needs."""
    app.add_directive(CLASS, PasteBox)
    app.connect("html-page-context", load)
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
