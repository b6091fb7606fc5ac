"""The directive `drawing`: an SVG of `_static/drawings/`, put into the page so that it follows the theme.

A drawing takes its colours from `currentColor` and the theme's CSS variables, and tells in <title> and <desc> what
it shows.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

WIDE = 400
"""Width from which a drawing scrolls on a small screen, where its text would shrink to nothing."""

SVG = "{http://www.w3.org/2000/svg}"


def inlined(path: Path) -> str:
    """Read a drawing and makes its ids unique on a page.

    Raises:
        ValueError: It lacks a title or a description, or names a colour of its own.
    """
    text = path.read_text(encoding="utf-8")
    tree = ElementTree.fromstring(text)  # noqa: S314 - a file of this repository
    for name in ("title", "desc"):
        element = tree.find(f"{SVG}{name}")
        if element is None or not (element.text or "").strip() or element.get("id") != name:
            raise ValueError(f'{path.name} has no <{name} id="{name}"> with a text: say what the drawing shows')
    if tree.get("role") != "img" or tree.get("aria-labelledby") != "title desc" or tree.get("viewBox") is None:
        raise ValueError(f'{path.name}: <svg> needs viewBox, role="img" and aria-labelledby="title desc"')
    own = re.search(r"""(?:fill|stroke)\s*[=:]\s*["']?\s*(#[0-9a-fA-F]+|rgb\([^)]*\))""", text)
    if own:
        raise ValueError(f"{path.name} uses the colour {own[1]}: use currentColor or var(--color-...) of the theme")
    ids = re.findall(r'\bid="([^"]+)"', text)
    for name in ids:
        text = text.replace(f'id="{name}"', f'id="{path.stem}-{name}"').replace(
            f"url(#{name})", f"url(#{path.stem}-{name})"
        )
        text = text.replace(f'href="#{name}"', f'href="#{path.stem}-{name}"')
    text = text.replace('aria-labelledby="title desc"', f'aria-labelledby="{path.stem}-title {path.stem}-desc"')
    return re.sub(r"<\?xml[^>]*\?>|<!--.*?-->", "", text, flags=re.S).strip()


class Drawing(SphinxDirective):
    """Puts a drawing into the page, with the directive's content as its caption."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Build the figure, or reports what is wrong with the drawing."""
        path = Path(self.env.srcdir, "_static", "drawings", f"{self.arguments[0]}.svg")
        try:
            svg = inlined(path)
        except FileNotFoundError:
            known = ", ".join(sorted(other.stem for other in path.parent.glob("*.svg")))
            return [
                self.state.document.reporter.error(f"no drawing {path.stem!r}; there are {known}", line=self.lineno)
            ]
        except (ValueError, ElementTree.ParseError) as error:
            return [self.state.document.reporter.error(f"drawing: {error}", line=self.lineno)]
        self.env.note_dependency(str(path))
        wide = float(re.findall(r'viewBox="[\d.-]+ [\d.-]+ ([\d.]+)', svg)[0]) > WIDE
        box = nodes.container(classes=["drawing", "drawing-wide"] if wide else ["drawing"], is_div=True)
        box += nodes.raw("", svg, format="html", drawing=path.stem)
        box += self.parse_content_to_nodes()
        return [box]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
