"""Writes the site for programs that read text: each page as Markdown beside it, and `llms.txt`, the list of all.

`llms.txt` has the form of llmstxt.org: a title, what the site is, then one list of links for each part.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from markdown_twin import Writer

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

LEFT_OUT = {"404"}
"""Pages that nobody asks for by name."""


def write_twin(app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Write a page as Markdown, and name the file in the head of the page."""
    if doctree is None or page in LEFT_OUT or app.builder.format != "html":
        return
    builder: Any = app.builder

    def image(name: str) -> str:
        return posixpath.join(builder.imgpath, builder.images[name]) if name in builder.images else name

    text = Writer(image, builder.dlpath).page(doctree)
    target = Path(app.outdir, f"{page}.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, text)
    link = f'<link rel="alternate" type="text/markdown" href="{posixpath.basename(page)}.md">'
    context["metatags"] = context.get("metatags", "") + link


def below(env: BuildEnvironment, page: str) -> Iterator[str]:
    """Yield the pages below a page, in the order of the sidebar."""
    for child in env.toctree_includes.get(page, []):
        yield child
        yield from below(env, child)


def listed(app: Sphinx, page: str) -> str:
    """Write the line of a page."""
    title = " ".join(app.env.titles[page].astext().split()).replace("[", "\\[").replace("]", "\\]")
    description = app.env.metadata[page].get("description", "")
    return f"- [{title}]({app.config.html_baseurl}{page}.md): {description}"


def overview(app: Sphinx) -> str:
    """Write the list of all pages: those of the first page alone, then a part for each page that has others below."""
    env, root = app.env, app.config.root_doc
    first, parts = [root], []
    for page in env.toctree_includes.get(root, []):
        pages = list(dict.fromkeys(below(env, page)))
        if pages:
            parts += [f"## {env.titles[page].astext()}", "\n".join(listed(app, name) for name in [page, *pages])]
        else:
            first.append(page)
    head = [f"# {app.config.project}", f"> {env.metadata[root].get('description', '')}"]
    about = "Each page is also there as Markdown: put `.md` in place of `.html`."
    return "\n\n".join([*head, about, "## Start", "\n".join(listed(app, name) for name in first), *parts]) + "\n"


def write_overview(app: Sphinx, exception: Exception | None) -> None:
    """Write `llms.txt` when all pages are written."""
    if exception is None and app.builder.format == "html":
        write_whole(Path(app.outdir, "llms.txt"), overview(app))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect both."""
    app.connect("html-page-context", write_twin)
    app.connect("build-finished", write_overview)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
