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
from repository import after_build

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bs4 import Tag
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

UNSEEN = re.compile(
    r'<a class="headerlink".*?</a>|<del>.*?</del>|<span class="diff-gap">.*?</span>'
    r'|<div class="sphx-glr-download-link-note.*?</div>',
    re.DOTALL,
)
"""Marks of headings, what a difference has besides the new file, and the gallery's links within a page."""

LEFT_OUT = {"404"}
"""Pages that nobody asks for by name."""


def language(block: Tag) -> str:
    """Return the language of a code block."""
    around = block.find_parent("div", class_=re.compile("^highlight-"))
    name = re.findall(r"highlight-(\S+)", " ".join(around["class"]))[0] if around else "none"
    return "" if name in ("none", "default") else name.lower()


class Converter(MarkdownConverter):  # type: ignore[misc]
    """Writes what markdownify does not know: names of folded parts and tabs, drawings, links to other pages."""

    class Options(MarkdownConverter.DefaultOptions):  # type: ignore[misc]
        """Markdown as programs expect it."""

        bullets = "-"
        code_language_callback = staticmethod(language)
        escape_asterisks = escape_underscores = False
        heading_style = ATX

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


def markdown(html: str) -> str:
    r"""Return what a page shows as Markdown.

    >>> markdown('<h1>A<a class="headerlink" href="#a">¶</a></h1><p><a href="../b.html#c">b</a></p>')
    '# A\n\n[b](../b.md)\n'
    """
    plain = re.sub("</?span[^>]*>", "", UNSEEN.sub("", html))  # thousands, which take most of the time
    return f"{Converter().convert(plain).strip()}\n"


def write_markdown(app: Sphinx, page: str, _template: str, context: dict[str, Any], tree: object) -> None:
    """Write a page as Markdown, and name the file in the head of the page."""
    if tree is None or page in LEFT_OUT or app.builder.format != "html":
        return
    target = Path(app.outdir, f"{page}.md")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, markdown(context["body"]))
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


def write_overview(app: Sphinx) -> None:
    """Write `llms.txt`: the pages of the first page alone, then a part for each page that has others below."""
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
    text = "\n\n".join([*head, about, "## Start", "\n".join(listed(app, name) for name in first), *parts])
    write_whole(Path(app.outdir, "llms.txt"), f"{text}\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect both."""
    app.connect("html-page-context", write_markdown)
    after_build(app, write_overview)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
