"""Entries about failures: pages made from their front matter, and the directive `failure-index` that lists them.

An entry is a page in the folder `troubleshooting`. `failure_entries` says what its front matter holds. From it come the
page's title, its description for search engines, the block with all forms of the message and the fix in one line, and
its place in the index. The page itself begins with a sentence and the sections that `SECTIONS` names. A recording on it
shows the message; where no machine here can reproduce it, `source` says where the text was taken from.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes
from failure_entries import FRONT_MATTER, EntryError, parse_entry
from repository import disclosure, line, note, noted
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from srunbook.explain import Entry, expression, plain, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

ENTRY = "failure-entry"
"""The fact that holds the entry of a page."""

MOST_FORMS = 4
"""Forms of the message that a page shows at once."""

SECTIONS = ["The fix", "The cause"]
"""The first sections of an entry."""

PHASES = {
    "submit": "is submitted",
    "queue": "waits",
    "start": "starts",
    "meet": "connects its processes",
    "train": "trains",
    "save": "saves or loads",
    "end": "ends",
}
"""What a job does in each stage."""


INLINE = re.compile(r"`([^`]+)`|\[([^\]]+)\]\((https?://[^)\s]+)\)")


def inlined(text: str) -> list[nodes.Node]:
    """Make nodes of a line of text with code between backticks, and links as Markdown writes them."""
    parts, end = [], 0
    for match in INLINE.finditer(text):
        code, label, address = match.groups()
        parts += [nodes.Text(text[end : match.start()])]
        parts += [nodes.literal(code, code) if code else nodes.reference("", label, refuri=address)]
        end = match.end()
    return [*parts, nodes.Text(text[end:])]


def add_title(app: Sphinx, page: str, content: list[str]) -> None:
    """Give an entry its title, on the line below its front matter, so that all other lines keep their number."""
    if not page.startswith("troubleshooting/") or page == "troubleshooting/index":
        return
    title = page
    try:
        entry = parse_entry(content[0], page)
        title = f"`` {entry.title} ``" if entry.messages else entry.title
        app.env.metadata[page][ENTRY] = entry
    except EntryError as error:
        logger.warning("%s", error, location=page, type="failures")
    front = FRONT_MATTER.match(content[0])
    place = front.end() if front else 0
    content[0] = f"{content[0][:place]}# {title}\n{content[0][place:].removeprefix(chr(10))}"


def build_head(app: Sphinx, doctree: nodes.document) -> None:
    """Put the forms of the message and the fix below an entry's title, and its description into the page's head."""
    page = app.env.docname
    entry = app.env.metadata[page].get(ENTRY)
    if entry is None:
        return
    check(entry, page, doctree)
    box = nodes.container(classes=["failure-head"], is_div=True)
    if len(entry.messages) > 1:  # the only one is the title
        first, more = entry.messages[:MOST_FORMS], entry.messages[MOST_FORMS:]
        box += listed_forms(first)
        box += [disclosure("", listed_forms(more), summary=f"{len(more)} more forms")] if more else []
    box += line(nodes.strong("", "Fix: "), *inlined(entry.fix), classes=["failure-fix"])
    facts = [f"while it {PHASES[entry.stage]}", entry.symptom, *entry.frameworks]
    box += line(" · ".join(facts), classes=["failure-where"])
    if entry.source:
        box += line(
            "Not reproduced here. Text from ", *inlined(f"{entry.source}."), classes=["badge-line", "badge-none"]
        )
    next(doctree.findall(nodes.section)).insert(1, box)
    described = f"{entry.title}. {entry.fix}".replace("`", "")
    doctree.insert(0, nodes.meta(name="description", content=described))
    if keywords := app.env.metadata[page].get("keywords"):
        doctree.insert(0, nodes.meta(name="keywords", content=str(keywords)))


def listed_forms(messages: Iterable[str]) -> nodes.literal_block:
    """Make the block with some forms of the message."""
    text = "\n".join(map(shown, messages))
    return nodes.literal_block(text, text, language="none", front_matter="messages")


def check(entry: Entry, page: str, doctree: nodes.document) -> None:
    """Warn about an entry without its sections, or without a proof of its message."""
    titles = [section[0].astext() for section in doctree.findall(nodes.section)][1:]
    if titles[: len(SECTIONS)] != SECTIONS:
        wanted = ", ".join(map(repr, SECTIONS))
        logger.warning("entry whose first sections are not %s", wanted, location=page, type="failures")
    forms = [re.compile(expression(form)) for form in entry.messages]
    recorded = [plain(block.astext()) for block in doctree.findall(nodes.literal_block) if "recording" in block]
    if forms and not entry.source and not any(form.search(text) for form in forms for text in recorded):
        logger.warning(
            "no recording on this page shows its message, %r: include one with `recorded`, or give a `source`",
            entry.messages[0],
            location=page,
            type="failures",
        )


class FailureIndex(SphinxDirective):
    """Lists the entries of a stage, each with its fix."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Leave an empty list, which is filled when all pages are read."""
        stage = self.arguments[0]
        if stage not in PHASES:
            raise self.error(f"no stage {stage!r}; there are {', '.join(PHASES)}")
        note(self.env, "failure-index", stage)
        return [nodes.bullet_list(classes=["failure-index"], stage=stage)]


def list_entries(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Fill the lists of a page."""
    for items in [*doctree.findall(nodes.bullet_list)]:
        if "stage" in items:
            for name, entry in of_stage(app.env, items["stage"]).items():
                items += listed(entry, app.builder.get_relative_uri(page, name))


def of_stage(env: BuildEnvironment, stage: str) -> dict[str, Entry]:
    """Return the entries of a stage by page, in the order in which the index lists them."""
    chosen = [(entry.title.lower(), name) for name, entry in noted(env, ENTRY).items() if entry.stage == stage]
    return {name: noted(env, ENTRY)[name] for _, name in sorted(chosen)}


def lead_on(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Lead from an entry to its neighbours in the list of its stage."""
    entry = noted(app.env, ENTRY).get(page)
    if entry is None:
        return
    names = [*of_stage(app.env, entry.stage)]
    place = names.index(page)
    for key, others in (("prev", names[:place][-1:]), ("next", names[place + 1 :][:1])):
        links = [
            {"link": app.builder.get_relative_uri(page, name), "title": escape(app.env.titles[name].astext())}
            for name in others
        ]
        context[key] = next(iter(links), None)


def listed(entry: Entry, address: str) -> nodes.list_item:
    """Make the item of an entry; its classes name the symptom and the frameworks, by which the page filters."""
    link = nodes.reference("", "", internal=True, refuri=address)
    link += nodes.literal(entry.title, entry.title) if entry.messages else nodes.Text(entry.title)
    words = [f"symptom-{entry.symptom}", *(f"framework-{name}" for name in entry.frameworks)]
    item = nodes.list_item(classes=[word.lower().replace(" ", "-") for word in words])
    item += line(link, classes=["failure-text"])
    item += line(*inlined(entry.fix), classes=["failure-fix"])
    item += line(" · ".join([entry.symptom, *entry.frameworks]), classes=["failure-where"])
    return item


def index_pages(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Name the pages that list entries, to be written anew by every build."""
    return [*noted(env, "failure-index")]


def setup(app: Sphinx) -> dict[str, int]:
    """Register the directive, the list and the checks."""
    app.add_directive("failure-index", FailureIndex)
    app.connect("source-read", add_title)
    app.connect("doctree-read", build_head)
    app.connect("env-updated", index_pages)
    app.connect("doctree-resolved", list_entries)
    app.connect("html-page-context", lead_on)
    return {"env_version": 1}  # of what is noted of a page
