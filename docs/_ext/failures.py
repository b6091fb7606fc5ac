"""Entries about failures: their form, the directive `failure-message`, and the list `failure-index` of all messages.

An entry is a page in the folder `failures_folder` whose front matter says `message`, `where` and `frameworks`, and
which has the sections that `SECTIONS` names. Its message stands in a recording on the page; where no machine here can
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


def is_entry(env: BuildEnvironment, page: str) -> bool:
    """Tell whether a page is an entry: one in `failures_folder` that is not its index."""
    folder = env.config.failures_folder
    return page.startswith(f"{folder}/") and page != f"{folder}/index"


def entries(env: BuildEnvironment) -> list[str]:
    """Return the pages that are entries, in the order of their messages."""
    pages = [page for page in env.found_docs if is_entry(env, page)]
    return sorted(pages, key=lambda page: (str(env.metadata[page].get("message", "")).lower(), page))


def squeezed(text: str) -> str:
    """Join the words of a text with single spaces."""
    return " ".join(text.split())


class FailureMessage(SphinxDirective):
    """Shows the message of an entry that cannot be reproduced here, and says where its text was taken from."""

    def run(self) -> list[nodes.Node]:
        """Build block and source from the page's front matter."""
        facts = self.env.metadata[self.env.docname]
        if not facts.get("message") or not facts.get("source"):
            error = "failure-message needs `message` and `source` in the page's front matter"
            return [self.state.document.reporter.error(error, line=self.lineno)]
        message = str(facts["message"])
        if not is_entry(self.env, self.env.docname) or len(message.strip().splitlines()) != 1:
            folder = self.env.config.failures_folder
            error = f"failure-message is for entries in {folder}/, whose `message` is one line"
            return [self.state.document.reporter.error(error, line=self.lineno)]
        box = nodes.container(classes=["recorded"], is_div=True)
        box += nodes.literal_block(message, message, language="none", front_matter="message")
        box += line(f"Not reproduced here. Text from {facts['source']}.", classes=["badge-line", "badge-none"])
        return [box]


class FailureIndex(SphinxDirective):
    """Lists the messages of all entries."""

    def run(self) -> list[nodes.Node]:
        """Leave a mark that is filled when all pages are read."""
        return [FailureIndexNode()]


def check(app: Sphinx, doctree: nodes.document) -> None:
    """Warn about an entry that does not have the form of one."""
    page = app.env.docname
    if not is_entry(app.env, page):
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
    """Put the list of messages where a page asked for it."""
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
    """Remember a page that lists the messages."""
    if any(doctree.findall(FailureIndexNode)):
        doctree.settings.env.metadata[doctree.settings.env.docname]["failure-index"] = "yes"


def index_pages(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Name the pages that list the messages, to be written anew by every build."""
    return [page for page in env.found_docs if "failure-index" in env.metadata[page]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives, the list and the check."""
    app.add_config_value("failures_folder", "failures", "env", str)
    app.add_node(FailureIndexNode)
    app.add_directive("failure-message", FailureMessage)
    app.add_directive("failure-index", FailureIndex)
    app.connect("doctree-read", check)
    app.connect("doctree-read", note_index)
    app.connect("env-updated", index_pages)
    app.connect("doctree-resolved", list_messages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
