"""The site's search: its index, made of the sections of all pages, and its page, in place of Sphinx's own.

The index is a script, so that it also loads from a disk. It holds the text of each section, of which the browser makes
an inverted index when somebody searches, and the expressions of the entries' messages.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from docutils import nodes
from failures import entry_of, is_entry
from repository import after_build, disclosure, note, noted
from sphinx import addnodes
from sphinx.builders.html import StandaloneHTMLBuilder

from srunbook._files import write_whole
from srunbook.explain import expression

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

INDEX = "_static/search-index.js"
ENV_VERSION = 5
"""Goes up with each change of what is kept of a page, so that the next build reads all pages again."""

UNSEEN = (nodes.raw, nodes.title, nodes.Invisible, nodes.system_message, addnodes.toctree)
"""What a reader does not see, and titles, which are kept apart."""

ABOUT = ("description", "keywords")
"""What the head of a page says about it, for search engines and for this search: a sentence, and what readers type."""

CAPTIONS = {"code-file-caption", "recorded-caption", "badge-line"}
WORD = re.compile(r"\w+")
NUMBER = re.compile(r"\w|\d+|[0-9a-f]{6,}")
"""Words of code that nobody looks for: figures, sums, single letters."""

LONGEST_WORD = 40
ROLES = ("cause", "consequence", "warning")
"""Which entry comes first when a line has the messages of several."""


class Section(NamedTuple):
    """A part of a page that a result can lead to: what lies below a heading, a term, or an object of the library.

    Args:
        anchor: Its id on the page; empty for the beginning of the page.
        title: Its heading.
        text: The text that one reads there, without that of its subsections.
        code: The different words of the programs and recordings there.
    """

    anchor: str
    title: str
    text: list[str]
    code: dict[str, None]


def sections_of(doctree: nodes.document, *, whole: bool = False) -> list[Section]:
    """Take a page apart.

    Args:
        doctree: The page.
        whole: Leave it in one piece.
    """
    found: list[Section] = []

    def take(node: nodes.Element, section: Section | None) -> None:
        for child in node.children:
            head = head_of(child)
            if head and (not found or not whole):
                anchor, title = head
                found.append(Section(anchor if found else "", title, [], {}))
                take(child, found[-1])
            elif section and is_code(child):
                words = (word for word in WORD.findall(text_of(child)) if len(word) <= LONGEST_WORD)
                section.code.update(dict.fromkeys(words))
            elif is_left_out(child):
                continue
            elif section and isinstance(child, nodes.TextElement):
                section.text.append(text_of(child))
            elif isinstance(child, nodes.Element):
                take(child, section)

    take(doctree, None)
    return found


def is_code(node: nodes.Node) -> bool:
    """Tell whether a node is a program or a recording, or the line above or below one, and not an entry's message."""
    if isinstance(node, (nodes.literal_block, nodes.doctest_block)):
        return "front_matter" not in node
    return isinstance(node, nodes.Element) and bool(CAPTIONS & set(node.get("classes", ())))


def is_left_out(node: nodes.Node) -> bool:
    """Tell whether a node is not seen, is a title, or has what a click opens below a measured table."""
    if isinstance(node, nodes.term):
        return bool(node["ids"])
    return isinstance(node, UNSEEN) or (isinstance(node, disclosure) and "measured-details" in node["classes"])


def text_of(node: nodes.Element) -> str:
    """Return the text of a node in one line, without what is not text."""
    texts = (text for text in node.findall(nodes.Text) if not isinstance(text.parent, UNSEEN))
    return " ".join("".join(texts).split())


def head_of(node: nodes.Node) -> tuple[str, str] | None:
    """Return the id and the title of a node that is a section of its own, or else None."""
    if isinstance(node, nodes.section):
        return node["ids"][0], node[0].astext()
    if isinstance(node, nodes.definition_list_item) and node[0]["ids"]:  # a term of the glossary
        return node[0]["ids"][0], node[0].astext()
    if isinstance(node, addnodes.desc) and node[0].get("ids"):
        return node[0]["ids"][0], node[0]["ids"][0]
    return None


SECTIONS = "srunbook-sections"
"""The fact that holds the sections of a page, each as JSON."""


def keep_sections(app: Sphinx, doctree: nodes.document) -> None:
    """Keep the sections of the page that was read."""
    env = app.env
    said = {meta.get("name"): meta["content"] for meta in doctree.findall(nodes.meta) if "content" in meta}
    env.metadata[env.docname]["search-about"] = [said.get(name, "") for name in ABOUT]
    for section in sections_of(doctree, whole=is_entry(env.docname)):
        text = " ".join(section.text)
        read = set(WORD.findall(text))
        code = (word for word in section.code if word not in read and not NUMBER.fullmatch(word))
        kept = [section.anchor, section.title, text, " ".join(code)]
        note(env, SECTIONS, json.dumps(kept, ensure_ascii=False))


def trail_of(env: BuildEnvironment, page: str, parents: dict[str, str]) -> list[str]:
    """Return the titles of the pages above a page, from below the first one."""
    titles: list[str] = []
    while (page := parents.get(page, env.config.root_doc)) != env.config.root_doc:
        titles.insert(0, env.titles[page].astext())
    return titles


def weight_of(env: BuildEnvironment, page: str) -> float:
    """Return how much a page counts: the weight of the first beginning in `search_weights` that it has, or 1."""
    return next((weight for start, weight in env.config.search_weights if page.startswith(start)), 1)


def index_of(app: Sphinx) -> dict[str, Any]:
    """Make the index of all pages but those that say `nosearch` in their front matter."""
    env = app.env
    parents = {child: page for page, children in env.toctree_includes.items() for child in children}
    pages = sorted(page for page in env.found_docs if "nosearch" not in env.metadata[page])
    kept = noted(env, SECTIONS)
    entries = {page: entry for page in pages if is_entry(page) and (entry := entry_of(env, page))}
    told = []
    for page in pages:
        description, keywords = env.metadata[page].get("search-about", ("", ""))
        told.append(
            {
                "address": app.builder.get_target_uri(page),
                "title": env.titles[page].astext(),
                "trail": trail_of(env, page, parents),
                "weight": weight_of(env, page),
                "about": description,
                "keywords": [phrase for part in keywords.split(",") if (phrase := part.strip())],
                "fix": entries[page].fix if page in entries else "",
            }
        )
    messages = [
        [expression(form), pages.index(page)]
        for page, entry in sorted(entries.items(), key=lambda item: ROLES.index(item[1].role))
        for form in entry.messages
    ]
    return {
        "pages": told,
        "sections": [[place, *json.loads(fact)] for place, page in enumerate(pages) for fact in kept.get(page, [])],
        "messages": messages,
        "suggestions": [pages.index(page) for page in env.config.search_suggestions if page in pages],
    }


def write_index(app: Sphinx) -> None:
    """Write the index."""
    text = json.dumps(index_of(app), ensure_ascii=False, separators=(",", ":"))
    write_whole(Path(app.outdir, INDEX), f"globalThis.searchIndex = {text};\n")


def replace_search(app: Sphinx) -> None:
    """Keep Sphinx from making an index and a page of its own."""
    if isinstance(app.builder, StandaloneHTMLBuilder):
        app.builder.search = False


def search_page(_app: Sphinx) -> list[tuple[str, dict[str, Any], str]]:
    """Make the page of results."""
    return [("search", {"title": "Search"}, "search.html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what makes the index and the page."""
    app.add_config_value("search_weights", [], "", list)
    app.add_config_value("search_suggestions", [], "", list)
    app.connect("builder-inited", replace_search)
    app.connect("doctree-read", keep_sections, priority=900)  # after whoever adds something to a page
    app.connect("html-collect-pages", search_page)
    after_build(app, write_index)
    return {"env_version": ENV_VERSION, "parallel_read_safe": False, "parallel_write_safe": True}
