"""The index of the site's search, made of the sections of all pages; `search.html` replaces Sphinx's own page.

The index is a script, so that it also loads from a disk. It holds how each section begins, the sections of each word,
and the expressions of the entries' messages.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from docutils import nodes
from failures import ENTRY
from navigation import above
from repository import CAPTIONS, after_build, disclosure, note, noted
from sphinx import addnodes
from sphinx.builders.html import StandaloneHTMLBuilder

from srunbook._files import write_whole
from srunbook.explain import expression
from srunbook.explain.entries import load_patterns, most_specific_first

if TYPE_CHECKING:
    from sphinx.application import Sphinx

INDEX = "_static/search-index.js"
UNSEEN = (nodes.raw, nodes.title, nodes.Invisible, nodes.system_message, addnodes.toctree)
"""What a reader does not see, and titles, which are kept apart."""

WORD = re.compile(r"\w+")
USELESS = re.compile(r"\w|\d+|[0-9a-f]{6,}|\w{41,}")
"""Words of code that nobody looks for: figures, sums, single letters, and very long ones."""

NAME = re.compile(r"[A-Za-z]\w*_\w")
"""Names in programs that one looks for; another word counts where pages say it, not where a program does."""

COMMON = 0.07
"""Share of all sections above which a word tells nothing."""

LEAD = 40
"""Characters of a section that a result shows. A page has a description."""

FIX = 90
"""Characters of an entry's fix that a result shows."""


class Section(NamedTuple):
    """A part of a page that a result can lead to: what lies below a heading, a term, or an object of the library.

    The beginning of a page has no anchor. `text` is what one reads, without subsections; `code` has the different words
    of programs and recordings.
    """

    anchor: str
    title: str
    text: list[str]
    code: dict[str, None]


def sections_of(doctree: nodes.document, *, whole: bool) -> list[Section]:
    """Take a page apart, or leave it whole."""
    sections: list[Section] = []

    def take(node: nodes.Element, section: Section | None) -> None:
        for child in node.children:
            head = head_of(child)
            if head and (not sections or not whole):
                anchor, title = head
                sections.append(Section(anchor if sections else "", title, [], {}))
                take(child, sections[-1])
            elif section and is_code(child):
                section.code.update(dict.fromkeys(WORD.findall(text_of(child))))
            elif is_left_out(child):
                continue
            elif section and isinstance(child, nodes.TextElement):
                section.text.append(text_of(child))
            elif isinstance(child, nodes.Element):
                take(child, section)

    take(doctree, None)
    return sections


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


SECTIONS, ABOUT = "search-sections", "search-about"
"""The facts that hold the sections of a page, and what its head says."""


def keep_sections(app: Sphinx, doctree: nodes.document) -> None:
    """Keep the sections of the page that was read."""
    env = app.env
    about = {meta.get("name"): meta["content"] for meta in doctree.findall(nodes.meta) if "content" in meta}
    env.metadata[env.docname][ABOUT] = about
    whole = ENTRY in env.metadata[env.docname]  # the programs of an entry are a click away: its text and messages count
    for section in sections_of(doctree, whole=whole):
        text = " ".join(section.text)
        read = dict.fromkeys(word.lower() if word.istitle() else word for word in WORD.findall(text))
        code = [word for word in section.code if not whole and word not in read and not USELESS.fullmatch(word)]
        lead = shorten(text, LEAD, placeholder=" …") if section.anchor else ""
        note(
            env,
            SECTIONS,
            [section.anchor, section.title, lead, [word for word in read if not USELESS.fullmatch(word)], code],
        )


def write_index(app: Sphinx) -> None:
    """Write the index of all pages but those that say `nosearch` in their front matter."""
    env = app.env
    pages = sorted(page for page in env.found_docs if "nosearch" not in env.metadata[page])
    sections, entries = noted(env, SECTIONS), noted(env, ENTRY)
    described = []
    for page in pages:
        about = env.metadata[page].get(ABOUT, {})
        described.append(
            {
                "address": app.builder.get_target_uri(page),
                "title": env.titles[page].astext(),
                "trail": [env.titles[name].astext() for name in reversed(above(app, page)[:-1])],
                "weight": next((weight for start, weight in env.config.search_weights if page.startswith(start)), 1),
                "about": "" if page in entries else about.get("description", ""),
                "keywords": [phrase for part in about.get("keywords", "").split(",") if (phrase := part.strip())],
                "fix": shorten(entries[page].fix, FIX, placeholder=" …") if page in entries else "",
            }
        )
    messages = [[expression(form), pages.index(page)] for page, form in most_specific_first(entries)]
    whole = [[place, *section] for place, page in enumerate(pages) for section in sections.get(page, [])]
    counts = Counter(word for section in whole for word in section[4])
    common = {word: None for word, count in counts.items() if count > max(1, COMMON * len(whole))}
    index = {
        "pages": described,
        "sections": [section[:4] for section in whole],
        "common": [*common],
        "text": inverted([[word for word in section[4] if word not in common] for section in whole]),
        "code": inverted([[word for word in section[5] if NAME.match(word)] for section in whole]),
        "messages": messages,
        "alike": load_patterns()["alike"],
        "report": f"{app.config.html_theme_options['source_repository']}/issues/new?template=missing-message.yml",
        "suggestions": [pages.index(page) for page in env.config.search_suggestions if page in pages],
    }
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    write_whole(Path(app.outdir, INDEX), f"globalThis.searchIndex = {text};\n")


def inverted(texts: list[list[str]]) -> list[str]:
    """Return a line for each word: the word, and by how much the number of each section with it exceeds the last one.

    >>> inverted([["rank", "node"], [], ["rank", "SLURM_JOB_ID"]])
    ['SLURM_JOB_ID 3', 'node 1', 'rank 1 2']
    """
    places: dict[str, list[int]] = {}
    for place, words in enumerate(texts, start=1):
        for word in words:
            places.setdefault(word, []).append(place)
    return [
        " ".join([word, *(str(place - before) for before, place in pairwise([0, *numbers]))])
        for word, numbers in sorted(places.items())
    ]


def replace_search(app: Sphinx) -> None:
    """Keep Sphinx from making an index and a page of its own."""
    if isinstance(app.builder, StandaloneHTMLBuilder):
        app.builder.search = False


def setup(app: Sphinx) -> dict[str, int]:
    """Register what makes the index."""
    app.add_config_value("search_weights", [], "", list)
    app.add_config_value("search_suggestions", [], "", list)
    app.connect("builder-inited", replace_search)
    app.connect("doctree-read", keep_sections, priority=900)  # after whoever adds something to a page
    after_build(app, write_index)
    return {"env_version": 9}  # of what is kept of a page
