"""Gives each page one description, for search engines, previews and `llms.txt`.

A page says it in its front matter. Pages that nobody writes by hand (the gallery, the library, the entries about
failures) get their first sentences, cut at a word.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SHORTEST, LONGEST = 50, 160
"""Characters that a search engine shows of a description."""

WITHOUT_SOURCE = {
    "search": "Search all guides, job scripts and error messages of srunbook, on multi-node training on Slurm.",
    "genindex": "Index of srunbook: the terms of the glossary, the functions and classes of the library, the options.",
    "py-modindex": "Index of the Python modules of the srunbook library, each with a link to its documentation.",
}
"""Descriptions of the pages that Sphinx makes by itself."""


def shortened(text: str, longest: int = LONGEST) -> str:
    """Cut a text at the end of a word, and mark the cut.

    >>> shortened("one two three", 9), shortened("one two three", 13), shortened("one, two", 6)
    ('one two…', 'one two three', 'one…')
    """
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    words = text[:longest].rpartition(" ")[0]  # room for the mark: the space, at least, is gone
    return f"{words.rstrip(' ,;:.-(')}…"


def first_sentences(doctree: nodes.document) -> str:
    """Join the page's first paragraphs until they are long enough for a description."""
    found = ""
    for paragraph in doctree.findall(nodes.paragraph):
        hidden = set(paragraph.get("classes", [])) & {"badge-line", "code-file-caption", "recorded-caption"}
        if hidden or isinstance(paragraph.parent, nodes.entry):
            continue
        found = f"{found} {paragraph.astext()}".strip()
        if len(found) >= SHORTEST:
            break
    title = doctree.next_node(nodes.title)
    return found or (title.astext() if title is not None else "")


def describe(app: Sphinx, doctree: nodes.document) -> None:
    """Leave one description in the page's head and among its metadata, where its preview takes it."""
    page = app.env.docname
    given = [meta for meta in doctree.findall(nodes.meta) if meta.get("name") == "description"]
    text = shortened(given[0]["content"] if given else first_sentences(doctree))
    for meta in given:
        meta.parent.remove(meta)
    doctree.insert(0, nodes.meta(name="description", content=text))
    app.env.metadata[page]["description"] = text
    app.env.metadata[page]["og:description"] = escape(text)  # its extension escapes quotes alone


def describe_without_source(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Describe the pages that Sphinx makes by itself."""
    if page in WITHOUT_SOURCE and not re.search(r'name="description"', context.get("metatags", "")):
        context["metatags"] = f'{context.get("metatags", "")}<meta name="description" content="{WITHOUT_SOURCE[page]}">'


def setup(app: Sphinx) -> dict[str, bool]:
    """Describe each page after all other extensions have put their text into it."""
    app.connect("doctree-read", describe, priority=900)
    app.connect("html-page-context", describe_without_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
