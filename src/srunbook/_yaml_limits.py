"""Refuse YAML that is too much for a configuration, before anything is built from it.

The parser gives one event after the other, without recursion. What comes after it recurses into what is nested, warns
of each anchor that is used again, and takes seconds for a hundred thousand keys. In YAML 1.1, 12:00:00 is a number.
"""

from __future__ import annotations

import io
import re

from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent


class MalformedError(ValueError):
    """A configuration file cannot be read; the message is one line that names the place and what is expected."""


MAX_NODES = 10_000
"""Keys, values, lists and mappings of a file; the largest useful one has about a thousand."""

MAX_LINE = 1 << 16
"""Characters of a line; a tag takes the parser a time that grows with the square of its length."""

MAX_DEPTH = 16
"""How deep lists and mappings lie in each other; a configuration has them two deep."""


def refuse_excess(text: str, place: str) -> None:
    """Refuse a text with too many keys and values, too deep a nest, too long a line, an anchor twice, or YAML 1.1.

    Args:
        text: The text.
        place: What messages call it.

    Raises:
        MalformedError: It has one of these.
        ruamel.yaml.error.YAMLError: It is not YAML.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_LINE:
            raise MalformedError(f"{place}:{number}: a line of {len(line)} characters, too long for a configuration")
        version = re.match(r"%YAML[ \t]+([^\s#]+)", line)
        if version and version[1] != "1.2":
            raise MalformedError(
                f"{place}:{number}: YAML {version[1][:10]} is asked for; only 1.2 is read. Remove this line"
            )
    nodes = depth = 0
    anchors = set()
    for event in YAML(typ="safe", pure=True).parse(io.StringIO(text)):
        where = f"{place}:{event.start_mark.line + 1}"
        nodes += isinstance(event, NodeEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if nodes > MAX_NODES:
            raise MalformedError(f"{where}: more than {MAX_NODES} keys and values, too many for a configuration")
        if depth > MAX_DEPTH:
            raise MalformedError(f"{where}: lists and mappings lie more than {MAX_DEPTH} deep in each other")
        if isinstance(event, NodeEvent) and event.anchor and not isinstance(event, AliasEvent):
            if event.anchor in anchors:
                raise MalformedError(f"{where}: the anchor {event.anchor[:40]!r} is there already. Take another name")
            anchors.add(event.anchor)
