"""The heads of pages, and small corrections to them.

Each page gets one description, for search engines, previews and `llms.txt`: that of its front matter or, for pages that
nobody writes by hand, its first sentences, cut at a word. It loads the style sheets and scripts of forms and of the
gallery only where they are needed. `404.html` works in whatever folder of a host the site lies, and a colon separates
a parameter from what it is.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from docutils import nodes

from srunbook import sites

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


NEEDED: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "memory-calculator": ("memory.css", "js/memory.js", {"type": "module"}),
    "paste-box": ("paste-box.css", "js/paste-box.js", {"defer": "defer"}),
    "guide-zip-line": (None, "js/zip.js", {"type": "module"}),
}
"""Style sheet and script of the pages that have something of a class."""

GALLERY = ("sg_gallery", "sg-tags")
"""How the names of sphinx-gallery's files begin, below `_static/`."""


def load(app: Sphinx, page: str, _template: str, _context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Add the files that a page needs."""
    if page == app.config.root_doc:
        app.add_css_file("home.css")
        app.add_js_file("js/chooser.js", type="module")
    if doctree is None:
        return
    classes = {name for node in doctree.findall(nodes.Element) for name in node.get("classes", ())}
    for style, script, options in (NEEDED[name] for name in NEEDED if name in classes):
        if style:
            app.add_css_file(style)
        app.add_js_file(script, **options)


def leave_out(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Take the gallery's files out of all other pages."""
    if page.startswith("gallery/"):
        return
    for kind in ("css_files", "script_files"):
        loaded = ((file, str(getattr(file, "filename", file)).rpartition("/")[2]) for file in context[kind])
        context[kind] = [file for file, name in loaded if not name.startswith(GALLERY)]


def find_site(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Lead the links of `404.html` from the folder of the site, since a host sends it for an address of any depth.

    `<base>` names the published folder; a script finds the one where the site lies elsewhere.
    """
    if page == "404":
        base = urlsplit(app.config.html_baseurl).path or "/"
        script = Path(__file__).with_name("missing_page.js").read_text(encoding="utf-8")
        robots = '<meta name="robots" content="noindex">'
        context["metatags"] = f'<base href="{base}"><script>\n{script}</script>{robots}{context.get("metatags", "")}'
        context["pageurl"] = None  # the page has no address of its own


def replace_hyphens(_app: Sphinx, doctree: nodes.document) -> None:
    """Put a colon between the name of a parameter and what it is, where docutils puts two hyphens."""
    for field_list in doctree.findall(nodes.field_list):
        for text in list(field_list.findall(nodes.Text)):
            if text.astext() == " -- ":
                text.parent.replace(text, nodes.Text(": "))


def write_sites(app: Sphinx, problem: Exception | None) -> None:
    """Write what is known of each site, except the account, which is an example, for the panel *My cluster*."""
    if app.builder.format == "html" and not problem:
        known = {}
        for name in sites.names():
            fields = {field: value for field, value in sites.read(name).items() if field != "account"}
            if fields:
                known[name] = {"partition": None, "constraint": None, **fields}  # what it doesn't name, it doesn't need
        text = json.dumps(known)
        Path(app.outdir, "_static", "sites.json").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the changes, most of them after those of other extensions."""
    app.connect("doctree-read", replace_hyphens)
    app.connect("doctree-read", describe, priority=900)
    app.connect("html-page-context", describe_without_source)
    app.connect("html-page-context", load)
    app.connect("html-page-context", find_site, priority=900)
    app.connect("html-page-context", leave_out, priority=999)
    app.connect("build-finished", write_sites)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
