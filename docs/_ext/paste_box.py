"""What the paste box looks for, in which a reader pastes a log and finds the entry that explains its first failure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from srunbook.explain import expression, load_entries, load_ordinary
from srunbook.explain.entries import load_patterns, most_specific_first
from srunbook.explain.report import SAYS_NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def data() -> str:
    """Return what the box looks for, as JSON for an element of the page."""
    entries = [
        {
            "slug": slug,
            "role": "cause" if entry.explains else entry.role,
            "explains": entry.explains,
            "beside": bool(entry.explains) and entry.role == "warning",
        }
        for slug, entry in load_entries().items()
        if entry.messages
    ]
    patterns = load_patterns()
    slugs = [entry["slug"] for entry in entries]
    forms = [[expression(form), slugs.index(slug)] for slug, form in most_specific_first(load_entries())]
    for pattern in _texts([patterns, [form for form, _ in forms]]):
        if not COMMON.fullmatch(pattern):
            raise ValueError(f"{pattern!r}: write it with what Python and JavaScript have in common")
    rules = {**patterns, "entries": entries, "forms": forms}
    rules |= {"ordinary": sorted(load_ordinary()), "says_nothing": SAYS_NOTHING}
    return json.dumps(rules, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    else:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
