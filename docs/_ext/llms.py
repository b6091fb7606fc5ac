"""Writes the site for programs that read text: each page as Markdown beside it, and `llms.txt`, the list of all.

A twin says what the page's doctree says, without what only a screen needs. Files, diffs and recorded output become
fenced blocks, drawings their description, cards and tabs what they hold. `llms.txt` has the form of llmstxt.org: a
title, what the site is, then one list of links for each part.
"""

from __future__ import annotations

import posixpath
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from xml.etree import ElementTree

from docutils import nodes
from repository import after_build
from sphinx import addnodes

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


def fenced(text: str, language: str = "") -> str:
    r"""Put a text into a fence longer than any that it holds.

    >>> print(fenced("a```b", "python"))
    ````python
    a```b
    ````
    """
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{'' if language in ('none', 'default') else language}\n{text.rstrip(chr(10))}\n{fence}"


def code(text: str) -> str:
    """Mark words as code.

    >>> code("srun"), code("a`b")
    ('`srun`', '`` a`b ``')
    """
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def indented(text: str, first: str) -> str:
    r"""Put a mark before a block, and move its further lines below the first.

    >>> indented("a\nb", "- ")
    '- a\n  b'
    """
    return first + text.replace("\n", "\n" + " " * len(first)).replace("\n" + " " * len(first) + "\n", "\n\n")


def twin_address(address: str) -> str:
    """Lead a link within the site to the twin of its page; a twin has no anchors.

    >>> twin_address("../a.html#b"), twin_address("x.zip"), twin_address("https://host.example/a.html#b")
    ('../a.md', 'x.zip', 'https://host.example/a.html#b')
    """
    parts = urlsplit(address)
    if parts.netloc or not parts.path.endswith(".html"):
        return address
    return urlunsplit(("", "", f"{parts.path.removesuffix('.html')}.md", "", ""))


def drawn(html: str) -> str:
    """Say what a drawing shows, or what else a piece of HTML says; a sign without a title says nothing."""
    if not html.startswith("<svg"):
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
    tree = ElementTree.fromstring(html)  # noqa: S314 - from our own build
    texts = [tree.findtext(f"{{http://www.w3.org/2000/svg}}{name}") or "" for name in ("title", "desc")]
    return " ".join("Drawing: {}. {}".format(*texts).split()) if texts[0] else ""


class Writer:
    """Writes the nodes of one page, each by the method named after its class or the nearest class above it.

    Methods `_word_...` write what stands within a line, `_block_...` what stands by itself.

    Args:
        images: Return the address of a picture, from the page, for its name in the doctree.
        downloads: The folder of files to download, from the page.
    """

    def __init__(self, images: Callable[[str], str], downloads: str) -> None:
        self.images = images
        self.downloads = downloads
        self.level = 0

    def page(self, doctree: nodes.document) -> str:
        """Return the page."""
        return "\n\n".join(self.blocks(doctree)).strip() + "\n"

    def written(self, kind: str, node: nodes.Node) -> Any:
        """Write a node by the method for its class."""
        names = (f"_{kind}_{base.__name__.lower()}" for base in type(node).__mro__)
        return next(getattr(self, name) for name in names if hasattr(self, name))(node)

    def words(self, node: nodes.Node) -> str:
        """Write what a node holds within one line."""
        return " ".join("".join(self.written("word", child) for child in node.children).split())

    def blocks(self, node: nodes.Node) -> list[str]:
        """Write what a node holds, one block below the other; what says nothing leaves nothing."""
        return [text for child in node.children for text in self.written("block", child) if text]

    # Within a line

    def _word_node(self, node: nodes.Node) -> str:
        return "".join(self.written("word", child) for child in node.children)

    def _word_text(self, node: nodes.Text) -> str:
        return str(node.astext())

    def _word_literal(self, node: nodes.literal) -> str:
        return code(str(node.astext()))

    def _word_strong(self, node: nodes.strong) -> str:
        return f"**{self.words(node)}**"

    def _word_emphasis(self, node: nodes.emphasis) -> str:
        return f"*{self.words(node)}*"

    def _word_inline(self, node: nodes.inline) -> str:
        space = " " if "code-file-download" in node["classes"] else ""
        return space + self._word_node(node)

    def _word_reference(self, node: nodes.reference) -> str:
        if not node.get("refuri") or not node.astext().strip():
            return self._word_node(node)
        return f"[{self.words(node)}]({twin_address(node['refuri'])})"

    def _word_download_reference(self, node: addnodes.download_reference) -> str:
        target = posixpath.join(self.downloads, node["filename"]) if "filename" in node else node.get("refuri", "")
        return f"[{self.words(node)}]({target})"

    def _word_image(self, node: nodes.image) -> str:
        return f"![{node.get('alt', '')}]({self.images(node['uri'])})"

    def _word_raw(self, node: nodes.raw) -> str:
        return drawn(node.astext())

    def _word_invisible(self, _node: nodes.Invisible) -> str:
        return ""

    # By itself

    def _block_node(self, node: nodes.Node) -> list[str]:
        return self.blocks(node)

    def _block_text(self, node: nodes.Text) -> list[str]:
        return [" ".join(node.astext().split())]

    def _block_textelement(self, node: nodes.TextElement) -> list[str]:
        return [" ".join(self.written("word", node).split())]

    def _block_image(self, node: nodes.image) -> list[str]:
        return [self._word_image(node)]

    def _block_raw(self, node: nodes.raw) -> list[str]:
        return [drawn(node.astext())]

    def _block_invisible(self, _node: nodes.Invisible) -> list[str]:
        return []

    _block_meta = _block_index = _block_system_message = _block_invisible

    def _block_section(self, node: nodes.section) -> list[str]:
        self.level += 1
        blocks = self.blocks(node)
        self.level -= 1
        return blocks

    def _block_title(self, node: nodes.title) -> list[str]:
        if isinstance(node.parent, nodes.section | nodes.document):
            return [f"{'#' * max(1, self.level)} {self.words(node)}"]
        return self._block_rubric(node)

    def _block_rubric(self, node: nodes.Node) -> list[str]:
        return [f"**{self.words(node)}**" if node.astext().strip() else ""]

    _block_caption = _block_dropdown_title = _block_sd_tab_label = _block_rubric

    def _block_disclosure(self, node: nodes.Element) -> list[str]:
        return [f"**{node['summary']}**", *self.blocks(node)]

    def _block_container(self, node: nodes.container) -> list[str]:
        return self._block_rubric(node) if "sd-card-title" in node["classes"] else self.blocks(node)

    def _block_literal_block(self, node: nodes.Element) -> list[str]:
        return [fenced(node.astext(), node.get("language", ""))]

    _block_doctest_block = _block_literal_block

    def _block_bullet_list(self, node: nodes.bullet_list) -> list[str]:
        return ["\n".join(indented("\n\n".join(self.blocks(item)), "- ") for item in node.children)]

    def _block_enumerated_list(self, node: nodes.enumerated_list) -> list[str]:
        items = enumerate(node.children, node.get("start", 1))
        return ["\n".join(indented("\n\n".join(self.blocks(item)), f"{number}. ") for number, item in items)]

    def _block_definition_list_item(self, node: nodes.Element) -> list[str]:
        name, *rest = node.children
        text = "\n\n".join(block for child in rest for block in self.written("block", child) if block)
        return [indented(f"**{self.words(name)}**: {text}", "- ")]

    _block_field = _block_definition_list_item

    def _block_block_quote(self, node: nodes.Element, head: str = "") -> list[str]:
        lines = "\n\n".join([head, *self.blocks(node)]).strip().splitlines()
        return ["\n".join(f"> {line}".rstrip() for line in lines)]

    def _block_admonition(self, node: Any) -> list[str]:
        if "sphx-glr-download-link-note" in node["classes"]:  # leads to a part of the page on the screen
            return []
        return self._block_block_quote(
            node, "" if node.first_child_matching_class(nodes.title) == 0 else f"**{node.tagname.capitalize()}**"
        )

    def _block_desc_signature(self, node: addnodes.desc_signature) -> list[str]:
        return [f"{'#' * min(6, self.level + 1)} {code(node.astext())}"]

    def _block_transition(self, _node: nodes.transition) -> list[str]:
        return ["---"]

    def _block_table(self, node: nodes.table) -> list[str]:
        """Write a table; a cell that spans several columns leaves the others empty."""
        titles = [block for title in node.findall(nodes.title) for block in self._block_rubric(title)]
        rows = [[cell for entry in row.children for cell in self.cells(entry)] for row in node.findall(nodes.row)]
        width = max(map(len, rows))
        if next(node.findall(nodes.thead), None) is None:
            rows.insert(0, [""] * width)
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
        return [*titles, "\n".join([lines[0], f"|{'---|' * width}", *lines[1:]])]

    def cells(self, entry: Any) -> list[str]:
        """Write a cell."""
        text = " ".join(self.words(child) for child in entry.children).replace("|", "\\|")
        return [text, *[""] * entry.get("morecols", 0)]


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


def write_overview(app: Sphinx) -> None:
    """Write `llms.txt`."""
    write_whole(Path(app.outdir, "llms.txt"), overview(app))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect both."""
    app.connect("html-page-context", write_twin)
    after_build(app, write_overview)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
