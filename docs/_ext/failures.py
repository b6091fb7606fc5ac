"""Entries about failures: their form, the directive `failure-message`, and the list `failure-index` of all messages.

An entry is a page in docs/troubleshooting/ whose front matter says `message`, `where` and `frameworks`, and which has
the sections that `SECTIONS` names. Its message stands in a recording on the page; where no machine here can
reproduce it, the front matter says under `source` where the text was taken from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from repository import line
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

logger = logging.getLogger(__name__)

FIELDS = ("message", "where", "frameworks")
SECTIONS = ("The message", "Where it is seen", "The cause", "The fix", "The test")


class FailureIndexNode(nodes.General, nodes.Element):  # type: ignore[misc]
    """Stands for the list of messages until all pages are read."""


def entries(env: BuildEnvironment) -> list[str]:
    """Pages that are entries, in the order of their messages."""
    pages = [page for page in env.found_docs if page.startswith("troubleshooting/") and page != "troubleshooting/index"]
    return sorted(pages, key=lambda page: (str(env.metadata[page].get("message", "")).lower(), page))


def squeezed(text: str) -> str:
    """A text without its line breaks and runs of blanks."""
    return " ".join(text.split())


class FailureMessage(SphinxDirective):
    """Shows the message of an entry that cannot be reproduced here, and says where its text was taken from."""

    def run(self) -> list[nodes.Node]:
        """Builds block and source from the page's front matter."""
        facts = self.env.metadata[self.env.docname]
        if not facts.get("message") or not facts.get("source"):
            error = "failure-message needs `message` and `source` in the page's front matter"
            return [self.state.document.reporter.error(error, line=self.lineno)]
        message = str(facts["message"])
        if not self.env.docname.startswith("troubleshooting/") or len(message.strip().splitlines()) != 1:
            error = "failure-message is for entries in troubleshooting/, whose `message` is one line"
            return [self.state.document.reporter.error(error, line=self.lineno)]
        box = nodes.container(classes=["recorded"], is_div=True)
        box += nodes.literal_block(message, message, language="none", front_matter="message")
        box += line(f"Not reproduced here. Text from {facts['source']}.", classes=["badge-line", "badge-none"])
        return [box]


class FailureIndex(SphinxDirective):
    """Lists the messages of all entries."""

    def run(self) -> list[nodes.Node]:
        """Leaves a mark that is filled when all pages are read."""
        return [FailureIndexNode()]


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Warns about an entry that has not the form of one."""
    page = app.env.docname
    if not page.startswith("troubleshooting/") or page == "troubleshooting/index":
        return
    facts = app.env.metadata[page]
    for field in FIELDS:
        if not str(facts.get(field, "")).strip():
            logger.warning(
                "entry without `%s` in its front matter; it needs %s",
                field,
                ", ".join(FIELDS),
                location=page,
                type="failures",
            )
    titles = [section[0].astext() for section in doctree.findall(nodes.section)]
    missing = [title for title in SECTIONS if title not in titles]
    if missing:
        logger.warning("entry without the sections %s", ", ".join(map(repr, missing)), location=page, type="failures")
    message = squeezed(str(facts.get("message", "")))
    shown = [block for block in doctree.findall(nodes.literal_block) if "recording" in block or "front_matter" in block]
    if not any(message in squeezed(block.astext()) for block in shown):
        logger.warning(
            "no recording on this page shows its message, %r: include one with `recorded`, or give a `source` and use "
            "`failure-message`",
            message,
            location=page,
            type="failures",
        )


def list_messages(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Puts the list of messages where a page asked for it."""
    for mark in list(doctree.findall(FailureIndexNode)):
        items = nodes.bullet_list(classes=["failure-index"])
        for entry in entries(app.env):
            facts = app.env.metadata[entry]
            message = str(facts.get("message", entry))
            link = nodes.reference("", "", internal=True, refuri=app.builder.get_relative_uri(page, entry))
            link += nodes.literal(message, message)
            item = nodes.list_item()
            item += line(link, classes=["failure-text"])
            item += line(f"{facts.get('frameworks', '')}. {facts.get('where', '')}.", classes=["failure-where"])
            items += item
        mark.replace_self(items if len(items) else line("No entries yet.", classes=[]))


def note_index(_app: Sphinx, doctree: nodes.document) -> None:
    """Remembers a page that lists the messages."""
    if any(doctree.findall(FailureIndexNode)):
        doctree.settings.env.metadata[doctree.settings.env.docname]["failure-index"] = "yes"


def index_pages(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Pages that list the messages: written anew by every build."""
    return [page for page in env.found_docs if "failure-index" in env.metadata[page]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directives, the list and the check."""
    app.add_node(FailureIndexNode)
    app.add_directive("failure-message", FailureMessage)
    app.add_directive("failure-index", FailureIndex)
    app.connect("doctree-read", check)
    app.connect("doctree-read", note_index)
    app.connect("env-updated", index_pages)
    app.connect("doctree-resolved", list_messages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
