"""The heads of pages, and small corrections to them.

Each page gets one description, for search engines, previews and `llms.txt`: that of its front matter or, for pages that
nobody writes by hand, its first sentences, cut at a word. It loads the style sheets and scripts of forms and of the
gallery only where they are needed. `404.html` works in whatever folder of a host the site lies, and a colon separates
a parameter from what it is.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import paste_box
from docutils import nodes
from repository import CAPTIONS, after_build

from srunbook import memory, sites

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SHORTEST, LONGEST = 50, 160
"""Characters that a search engine shows of a description."""


def first_sentences(doctree: nodes.document) -> str:
    """Join the page's first paragraphs until they are long enough for a description."""
    text = ""
    for paragraph in doctree.findall(nodes.paragraph):
        if CAPTIONS & {*paragraph["classes"]} or isinstance(paragraph.parent, nodes.entry):
            continue
        text = f"{text} {paragraph.astext()}".strip()
        if len(text) >= SHORTEST:
            break
    title = doctree.next_node(nodes.title)
    return text or (title.astext() if title is not None else "")


def describe(app: Sphinx, doctree: nodes.document) -> None:
    """Leave one description in the page's head and among its metadata, where its preview takes it."""
    page = app.env.docname
    written = [meta for meta in doctree.findall(nodes.meta) if meta.get("name") == "description"]
    text = written[0]["content"] if written else first_sentences(doctree)
    text = re.sub("[,;:.(-]+…$", "…", shorten(text, LONGEST, placeholder="…", break_on_hyphens=False))
    for meta in written:
        meta.parent.remove(meta)
    doctree.insert(0, nodes.meta(name="description", content=text))
    app.env.metadata[page]["description"] = text
    app.env.metadata[page]["og:description"] = escape(text)  # its extension escapes quotes alone


NEEDED: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "chooser": ("home.css", "js/chooser.js", {"type": "module"}),
    "memory-calculator": ("memory.css", "js/memory.js", {"type": "module"}),
    "paste-box": ("paste-box.css", "js/paste-box.js", {"defer": "defer"}),
    "guide-zip-line": (None, "js/zip.js", {"type": "module"}),
}
"""Style sheet and script of the pages that have something of a class."""


def load(app: Sphinx, page: str, _template: str, _context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Add the files that a page needs, and to the page of the paste box what that looks for."""
    if doctree is None:
        return
    classes = {name for node in doctree.findall(nodes.Element) for name in node.get("classes", ())}
    for style, script, options in (NEEDED[name] for name in NEEDED if name in classes):
        if style:
            app.add_css_file(style)
        app.add_js_file(script, **options)
    if "paste-box" in classes:
        app.add_js_file(None, body=paste_box.data(), id="paste-data", type="application/json")
    if page.startswith("gallery/"):
        app.add_css_file("sg_gallery.css")


@cache
def last_changes(root: Path) -> dict[str, str]:
    """Return when each file last changed, by its path from the root; nothing without a history."""
    command = ["git", "log", "--format=%x00%cs", "--name-only", "--", "docs", "examples"]
    try:
        log = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=False).stdout
    except OSError:  # git is not installed
        return {}
    dates: dict[str, str] = {}
    for commit in log.split("\0")[1:]:
        date, *names = commit.split("\n")
        for name in names:
            dates.setdefault(name, date)  # the newest commit comes first
    return dates


def tell_source(app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: object) -> None:
    """Tell the template when a page last changed, and lead from a page of the gallery to the file that makes it."""
    if doctree is None:
        return
    root = Path(app.srcdir).parent
    source = app.env.doc2path(page).relative_to(root).as_posix()
    if page.startswith("gallery/"):
        folder, _, name = page.replace("gallery", "examples", 1).rpartition("/")
        source = f"{folder}/{'GALLERY_HEADER.rst' if name == 'index' else f'{name}.py'}"
        repository, branch = context["theme_source_repository"], context["theme_source_branch"]
        context["theme_source_edit_link"] = f"{repository}/edit/main/{source}"
        context["theme_source_view_link"] = f"{repository}/blob/{branch}/{source}"
    context["changed"] = last_changes(root).get(source)


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


def remove_clutter(_app: Sphinx, doctree: nodes.document) -> None:
    """Remove the gallery's note that a page has an end, and the place of tags, which nothing has."""
    for node in [*doctree.findall(nodes.note), *doctree.findall(nodes.raw)]:
        if "sphx-glr-download-link-note" in node["classes"] or "sg-tag-list" in node.astext():
            node.parent.remove(node)


def write_data(app: Sphinx) -> None:
    """Write what forms need: the formulas of memory, and what is known of each site, except the account, an example."""
    known = {}
    for name in sites.names():
        fields = {field: value for field, value in sites.read(name).items() if field != "account"}
        if fields:
            known[name] = {"partition": None, "constraint": None, **fields}  # what it doesn't name, it doesn't need
    Path(app.outdir, "_static", "sites.json").write_text(json.dumps(known), encoding="utf-8")
    Path(app.outdir, "_static", "memory.json").write_text(json.dumps(memory.FORMULAS), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect the changes, most of them after those of other extensions."""
    app.connect("doctree-read", replace_hyphens)
    app.connect("doctree-read", remove_clutter)
    app.connect("doctree-read", describe, priority=900)
    app.connect("html-page-context", load)
    app.connect("html-page-context", tell_source)
    app.connect("html-page-context", find_site, priority=900)
    after_build(app, write_data)
