"""Writes the site for programs that read text: each page as Markdown beside it, and `llms.txt`, the list of all.

markdownify turns what a page shows into Markdown; a drawing becomes its description. `llms.txt` has the form of
llmstxt.org: a title, what the site is, then one list of links for each part.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markdownify import ATX, MarkdownConverter
from navigation import above
from repository import after_build

from srunbook._files import write_whole

if TYPE_CHECKING:
    from bs4 import Tag
    from sphinx.application import Sphinx

UNSEEN = re.compile(r'<a class="headerlink".*?</a>|<del>.*?</del>|<span class="diff-gap">.*?</span>', re.DOTALL)
"""Marks of headings, and what a difference has besides the new file."""


def language(block: Tag) -> str:
    """Return the language of a code block."""
    around = block.find_parent("div", class_=re.compile("^highlight-"))
    name = re.findall(r"highlight-(\S+)", " ".join(around["class"]))[0] if around else "none"
    return "" if name in ("none", "default") else name.lower()


OPTIONS = {
    "bullets": "-",
    "code_language_callback": language,
    "escape_asterisks": False,
    "escape_underscores": False,
    "heading_style": ATX,
}


class Converter(MarkdownConverter):  # type: ignore[misc]
    """Writes what markdownify does not know: names of folded parts and tabs, drawings, links to other pages."""

    def convert_summary(self, _node: Tag, text: str, **_: object) -> str:
        """Write the name of a part that one click opens, or of a tab."""
        return f"\n\n**{text.strip()}**\n\n"

    convert_label = convert_summary

    def convert_svg(self, node: Tag, *_: object, **__: object) -> str:
        """Say what a drawing shows; a sign without a title says nothing."""
        title, description = (node.find(name) for name in ("title", "desc"))
        return " ".join(f"Drawing: {title.text}. {description.text}".split()) if title and description else ""

    def convert_a(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Lead a link to the Markdown of a page, which has no anchors."""
        address = str(node.get("href", "#"))
        if address.startswith("#"):
            return text
        if "://" not in address:
            node["href"] = re.sub(r"\.html(#.*)?$", ".md", address)
        return str(super().convert_a(node, text, parent_tags))

    def convert_dt(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Write a term, or the signature of a function as code."""
        text = f"`{node.text.strip()}`" if "sig" in (node.get("class") or "") else text
        return str(super().convert_dt(node, text, parent_tags))

    def convert_td(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Write a cell."""
        return str(super().convert_td(node, text.replace("|", r"\|"), parent_tags))


def write_markdown(app: Sphinx, page: str, _template: str, context: dict[str, Any], tree: object) -> None:
    """Write a page as Markdown, and name the file in the head of the page."""
    if tree is None or page == "404" or app.builder.format != "html":
        return
    html = re.sub("</?span[^>]*>", "", UNSEEN.sub("", context["body"]))  # thousands, which take most of the time
    write_whole(Path(app.outdir, f"{page}.md"), f"{Converter(**OPTIONS).convert(html).strip()}\n")
    link = f'<link rel="alternate" type="text/markdown" href="{posixpath.basename(page)}.md">'
    context["metatags"] = context.get("metatags", "") + link


def write_overview(app: Sphinx) -> None:
    """Write `llms.txt`: a part for each page below the root that has others below; the root's has the rest."""
    env, root = app.env, app.config.root_doc
    parts: dict[str, list[str]] = {}
    for page in env.collect_relations():  # in the order of the sidebar
        part = [*reversed(above(app, page)), page][:2][-1]
        title = " ".join(env.titles[page].astext().split()).replace("[", "\\[").replace("]", "\\]")
        item = f"- [{title}]({app.config.html_baseurl}{page}.md): {env.metadata[page].get('description', '')}"
        parts.setdefault(part if env.toctree_includes.get(part) else root, []).append(item)
    blocks = [f"# {app.config.project}", f"> {env.metadata[root].get('description', '')}"]
    blocks.append("Each page is also there as Markdown: put `.md` in place of `.html`.")
    for part, lines in parts.items():
        blocks += [f"## {'Start' if part == root else env.titles[part].astext()}", "\n".join(lines)]
    write_whole(Path(app.outdir, "llms.txt"), "\n\n".join(blocks) + "\n")


def setup(app: Sphinx) -> None:
    """Connect both."""
    app.connect("html-page-context", write_markdown)
    after_build(app, write_overview)
