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
    from collections.abc import Iterable

    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.builders.html import StandaloneHTMLBuilder

LEFT_OUT = re.compile(r"troubleshooting/(?!index$)|reference/api-")
"""Names of pages that the navigation leaves out."""


@cache
def navigation(app: Sphinx) -> list[dict[str, Any]]:
    """Return the sections of the root page, each with its caption and its pages, and these with the pages below."""
    env, builder = app.env, cast("StandaloneHTMLBuilder", app.builder)

    def branches(pages: Iterable[str]) -> list[dict[str, Any]]:
        return [
            {
                "page": page,
                "title": builder.render_partial(env.titles[page])["title"],
                "branches": branches(env.toctree_includes.get(page, [])),
            }
            for page in pages
            if page in env.titles and not LEFT_OUT.match(page)
        ]

    return [
        {"caption": toctree["caption"], "branches": branches(page for _, page in toctree["entries"])}
        for toctree in env.tocs[app.config.root_doc].findall(addnodes.toctree)
    ]


def above(app: Sphinx, page: str) -> list[str]:
    """Return the pages above a page, from the nearest to the root page."""
    parent = cast("StandaloneHTMLBuilder", app.builder).relations.get(page, [None])[0]
    return [parent, *above(app, parent)] if parent else []


def navigate(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: nodes.document | None) -> None:
    """Give the templates the navigation and the path of the page, and take the theme's own navigation away."""
    context.pop("toctree", None)
    context["navigation"] = navigation(app)
    context["navigation_path"] = [name for name in [page, *above(app, page)] if not LEFT_OUT.match(name)]


def setup(app: Sphinx) -> None:
    """Be earlier than the theme."""
    app.connect("html-page-context", navigate, priority=400)
