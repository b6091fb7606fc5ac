"""The navigation beside each page: read once from the tables of contents, and marked for each page by a template.

The theme resolves the whole tree of pages again for each page, which takes longer than all the rest of the writing.
Pages that are many and alike stay out of the navigation. Their index lists them, and a breadcrumb leads back to it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from sphinx import addnodes

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.builders.html import StandaloneHTMLBuilder

LEFT_OUT = re.compile(r"troubleshooting/(?!index$)|reference/api-")
"""Names of pages that the navigation leaves out."""


def branches(app: Sphinx, page: str) -> list[dict[str, Any]]:
    """Return the pages below a page, each with its name, its title in HTML and the pages below it."""
    builder = cast("StandaloneHTMLBuilder", app.builder)
    return [
        {
            "page": below,
            "title": builder.render_partial(app.env.titles[below])["title"],
            "branches": branches(app, below),
        }
        for below in app.env.toctree_includes.get(page, [])
        if below in app.env.titles and not LEFT_OUT.match(below)
    ]


@cache
def navigation(app: Sphinx) -> list[dict[str, Any]]:
    """Return the sections of the root page, each with its caption and its pages."""
    root = app.config.root_doc
    pages = {branch["page"]: branch for branch in branches(app, root)}
    return [
        {"caption": toctree["caption"], "branches": [pages[page] for _, page in toctree["entries"] if page in pages]}
        for toctree in app.env.tocs[root].findall(addnodes.toctree)
    ]


@cache
def parents(app: Sphinx) -> dict[str, str]:
    """Return the page above each page."""
    return {below: page for page, found in app.env.toctree_includes.items() for below in found}


def navigate(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None) -> None:
    """Give the templates the navigation and the path of the page, and take the theme's own navigation away."""
    context.pop("toctree", None)
    path = [page]
    while path[-1] in parents(app):
        path.append(parents(app)[path[-1]])
    context["navigation"] = navigation(app)
    context["navigation_path"] = [name for name in path if not LEFT_OUT.match(name)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Be earlier than the theme."""
    app.connect("html-page-context", navigate, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
