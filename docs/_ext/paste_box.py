"""The directive `paste-box`: where a reader pastes a log, and finds the entry that explains its first failure.

Its content is what the page shows without JavaScript. What the box looks for stands in the page as JSON.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from srunbook.explain import expression, load_entries, load_ordinary
from srunbook.explain.entries import load_patterns
from srunbook.explain.report import SAYS_NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

CLASS = "paste-box"

COMMON = re.compile(
    r"""(?:
    \\(?:[dDwWbtn]|x[0-9a-f]{2}|[^\w\s]|[ ])                # an escape; neither \s nor the number of a group
    | \[\^?(?:\\(?:[dwtn]|x[0-9a-f]{2}|[^\w\s])|[^][\\])+\] # a set
    | \((?:\?(?:[:=!]|<[=!])|(?!\?))                        # a group, but none with a name or a flag
    | (?:[*+?]|\{\d+(?:,\d*)?\})\??(?!\+)                   # a repetition, but no possessive one
    | [^][\\(*+?{}]                                         # a character, or one of . ^ $ | )
    )*""",
    re.VERBOSE,
)
"""What means the same in Python with `re.ASCII` and `re.DOTALL`, and in JavaScript with its flag `s`, in one line."""


class PatternError(ValueError):
    """A regular expression means something else in JavaScript, or nothing; the message names it."""


def rules() -> dict[str, Any]:
    """Return what the box looks for.

    Raises:
        PatternError: A regular expression is not `COMMON`.
    """
    entries = [
        {"slug": slug, "role": entry.role, "explains": entry.explains, "patterns": [*map(expression, entry.messages)]}
        for slug, entry in load_entries().items()
        if entry.messages
    ]
    patterns = load_patterns()
    for pattern in _texts([patterns, [entry["patterns"] for entry in entries]]):
        if not COMMON.fullmatch(pattern):
            raise PatternError(f"{pattern!r}: write it with what Python and JavaScript have in common")
    return {**patterns, "entries": entries, "ordinary": sorted(load_ordinary()), "says_nothing": SAYS_NOTHING}


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    else:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


class PasteBox(SphinxDirective):
    """Shows its content, which JavaScript replaces with the box."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make a container of the content."""
        return [nodes.container("", *self.parse_content_to_nodes(), classes=[CLASS], is_div=True)]


def add_rules(app: Sphinx, _page: str, _template: str, _context: object, doctree: nodes.document | None) -> None:
    """Put what the box looks for into its page."""
    if doctree and any(CLASS in node["classes"] for node in doctree.findall(nodes.container)):
        text = json.dumps(rules(), ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")
        app.add_js_file(None, body=text, id="paste-data", type="application/json")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and what it needs."""
    app.add_directive(CLASS, PasteBox)
    app.connect("html-page-context", add_rules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
