"""The directive `drawing`: an SVG of `_static/drawings/`, put into the page so that it follows the theme.

A drawing takes its colours from `currentColor` and the theme's CSS variables, and tells in <title> and <desc> what
it shows. Its ids begin with its name, since a page may have several drawings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from repository import FileError, RepositoryDirective

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sphinx.application import Sphinx

WIDE = 400
"""Width from which a drawing scrolls on a small screen, where its text would shrink to nothing."""

HEAD = (
    r'<svg [^>]*viewBox="0 0 ([\d.]+) [\d.]+" role="img" aria-labelledby="{0}-title {0}-desc"[^>]*>\s*'
    r'<title id="{0}-title">[^<]+</title>\s*<desc id="{0}-desc">[^<]+</desc>'
)
COLOUR = re.compile(r"""(?:fill|stroke)\s*[=:]\s*["']?\s*(#[0-9a-fA-F]+|rgb\([^)]*\))""")


class Drawing(RepositoryDirective):
    """Puts a drawing into the page, with the directive's content as its caption."""

    place = "docs/_static/drawings/{}.svg"
    has_content = True

    def build(self, path: Path) -> Iterator[nodes.Node]:
        """Build the figure."""
        svg, name = path.read_text(encoding="utf-8").strip(), path.stem
        head = re.match(HEAD.format(name), svg)
        if not head:
            raise FileError(f"{path.name} must say first what it shows: {HEAD.format(name)}")
        if colour := COLOUR.search(svg):
            raise FileError(f"{path.name} uses the colour {colour[1]}: use currentColor or var(--color-...)")
        if identifier := re.search(rf'\bid="(?!{name}-)[^"]*"', svg):
            raise FileError(f"{path.name}: begin {identifier[0]} with {name}-, so that it is unique on a page")
        classes = ["drawing", "drawing-wide"] if float(head[1]) > WIDE else ["drawing"]
        picture = nodes.raw("", svg, format="html", drawing=name)
        yield nodes.container("", picture, *self.parse_content_to_nodes(), classes=classes, is_div=True)


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("drawing", Drawing)
