"""What the page's log explainer works with, from `srunbook.explain`: entries, expressions for JavaScript, limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from javascript_patterns import javascript

from srunbook._files import BLOCK
from srunbook.explain import (
    Entry,
    Trouble,
    _diagnosis,
    _ended,
    _labels,
    _reading,
    _redact,
    _report,
    _scan,
    _trouble,
    expression,
)
from srunbook.explain._entries import PAGES
from srunbook.explain._forms import anchor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIMITS = {
    _reading: ["LONGEST_LINE"],
    _scan: ["LOOK_BACK", "LONGEST_QUOTE", "MOST_BETWEEN", "MOST_FINDINGS", "MOST_KINDS"],
    _diagnosis: ["MOST_TO_SEARCH", "NEAR"],
    _report: ["MOST_SHOWN", "SCHEMA"],
}
MODULES = (_ended, _labels, _reading, _redact, _scan, _trouble)
"""Whose expressions the page needs, under their names; `TIMES` are two."""


def rules(entries: Mapping[str, Entry], ordinary: Iterable[str]) -> dict[str, Any]:
    """Return everything that decides what is said of a log, as values for JSON.

    Args:
        entries: The entries, by slug.
        ordinary: Shapes of the lines that good runs print, too.

    Raises:
        PatternError: An expression has no equal in JavaScript.
    """
    patterns = {name: value for module in MODULES for name, value in vars(module).items() if _is_pattern(value)}
    return {
        "entries": {
            slug: {"title": entry.title, "fix": entry.fix, "role": entry.role, "explains": entry.explains}
            for slug, entry in entries.items()
        },
        "messages": [
            [slug, anchor(form).decode(), *javascript(re.compile(expression(form)))]
            for slug, entry in entries.items()
            for form in entry.messages
        ],
        "ordinary": sorted(ordinary),
        "words": [word.decode() for word in _trouble.WORDS],
        "patterns": {name: javascript(pattern) for name, pattern in patterns.items()},
        "times": [javascript(pattern) for pattern in _labels.TIMES],
        "trouble": {level.name: level.value for level in Trouble},
        "limits": {"BLOCK": BLOCK, **{name: getattr(module, name) for module in LIMITS for name in LIMITS[module]}},
        "nobody": sorted(_redact.COMMON),
        "file_endings": _redact.FILE_ENDINGS,
        "stopped": _ended.STOPPED,
        "says_nothing": _report.SAYS_NOTHING,
        "pages": PAGES,
    }


def _is_pattern(value: object) -> bool:
    return isinstance(value, re.Pattern)
