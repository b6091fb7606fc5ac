r"""The directive `paste-box`: where a reader pastes a log, and reads what `srunbook explain` would say of it.

Its content is what the page shows without JavaScript. What the box works with, `_static/explain-data.js`, loads when
somebody uses it. It is a script, so that it also loads from a disk.

Its regular expressions are those of Python, translated. The two languages differ in what `\w`, `\d`, `\s`, `\b` and `$`
mean, in the names of groups, and in verbose expressions. So the translation starts from what Python has parsed. What
has no equal in JavaScript fails the build, and the expression has to be written in another way.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]  # the parser that `re` itself uses
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

from docutils import nodes
from repository import after_build
from sphinx.util.docutils import SphinxDirective

from srunbook._files import BLOCK, write_whole
from srunbook.explain import Entry, Trouble, expression, load_entries, load_ordinary, redact, report, scan
from srunbook.explain.entries import PAGES, anchor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sphinx.application import Sphinx

CLASS = "paste-box"
DATA = "_static/explain-data.js"

LIMITS = {
    scan: ["LONGEST_LINE", "LOOK_BACK", "LONGEST_QUOTE", "MOST_BETWEEN", "MOST_FINDINGS", "MOST_KINDS"],
    report: ["MOST_SHOWN", "MOST_TO_SEARCH", "NEAR", "SCHEMA"],
}
MODULES = (redact, scan)
"""Whose expressions the page needs, under their names; `TIMES` are two."""


def rules(entries: Mapping[str, Entry], ordinary: Iterable[str]) -> dict[str, Any]:
    """Return everything that decides what is said of a log, as values for JSON.

    Args:
        entries: The entries, by slug.
        ordinary: Shapes of the lines that good runs print, too.

    Raises:
        PatternError: An expression has no equal in JavaScript.
    """
    named = {name: value for module in MODULES for name, value in vars(module).items()}
    patterns = {name: value for name, value in named.items() if isinstance(value, re.Pattern)}
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
        "words": [word.decode() for word in scan.WORDS],
        "patterns": {name: javascript(pattern) for name, pattern in patterns.items()},
        "times": [javascript(pattern) for pattern in scan.TIMES],
        "trouble": {level.name: level.value for level in Trouble},
        "limits": {"BLOCK": BLOCK, **{name: getattr(module, name) for module in LIMITS for name in LIMITS[module]}},
        "nobody": sorted(redact.COMMON),
        "file_endings": redact.FILE_ENDINGS,
        "stopped": scan.STOPPED,
        "says_nothing": report.SAYS_NOTHING,
        "pages": PAGES,
    }


SPACE = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
KINDS: dict[type, dict[Any, str]] = {
    str: {op.CATEGORY_WORD: r"\p{L}\p{N}_", op.CATEGORY_DIGIT: r"\p{Decimal_Number}", op.CATEGORY_SPACE: SPACE},
    bytes: {op.CATEGORY_WORD: "0-9A-Za-z_", op.CATEGORY_DIGIT: "0-9", op.CATEGORY_SPACE: r"\t-\r\x20"},
}
"""The characters of each kind, as JavaScript writes them between brackets, in texts and in bytes."""

OPPOSITE = {
    op.CATEGORY_NOT_WORD: op.CATEGORY_WORD,
    op.CATEGORY_NOT_DIGIT: op.CATEGORY_DIGIT,
    op.CATEGORY_NOT_SPACE: op.CATEGORY_SPACE,
}
FLAGS = re.IGNORECASE | re.VERBOSE | re.DOTALL | re.UNICODE
"""The flags that are translated."""

TIMES = {(0, op.MAXREPEAT): "*", (1, op.MAXREPEAT): "+", (0, 1): "?"}


class PatternError(ValueError):
    """An expression has no equal in JavaScript; the message names it and what to avoid."""


def javascript(pattern: re.Pattern[str] | re.Pattern[bytes]) -> tuple[str, str]:
    r"""Return source and flags of an expression. One of bytes becomes one of texts whose characters stand for bytes.

    Raises:
        PatternError: It has no equal.

    >>> print(*javascript(re.compile(r"(?P<rank>\d+): \w")))
    (?<rank>[\p{Decimal_Number}]+): [\p{L}\p{N}_] u
    """
    if pattern.flags & ~FLAGS or (pattern.flags & re.IGNORECASE and isinstance(pattern.pattern, bytes)):
        raise PatternError(f"{pattern.pattern!r}: {re.RegexFlag(pattern.flags)!r} has no equal in JavaScript here")
    source = _Translator(pattern).sequence(parser.parse(pattern.pattern, pattern.flags))
    return source, "iu" if pattern.flags & re.IGNORECASE else "u"


class _Translator:
    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self.pattern = pattern
        self.kinds = KINDS[type(pattern.pattern)]
        self.names = {number: name for name, number in pattern.groupindex.items()}
        word = self.kinds[op.CATEGORY_WORD]
        before, after, no_before, no_after = (f"({mark}[{word}])" for mark in ("?<=", "?=", "?<!", "?!"))
        self.places = {
            op.AT_BEGINNING: "^",
            op.AT_END: r"(?=\n?$)",
            op.AT_BOUNDARY: f"(?:{before}{no_after}|{no_before}{after})",
        }

    def refused(self, what: object) -> PatternError:
        return PatternError(f"{self.pattern.pattern!r}: {what} has no equal in JavaScript here")

    def sequence(self, items: Any) -> str:
        return "".join(self.item(code, argument) for code, argument in items)

    def item(self, code: Any, argument: Any) -> str:
        if code is op.LITERAL:
            return _escaped(argument)
        if code is op.NOT_LITERAL:
            return f"[^{_escaped(argument)}]"
        if code is op.ANY:
            return r"[\s\S]" if self.pattern.flags & re.DOTALL else r"[^\n]"
        if code is op.IN:
            return self.characters(argument)
        if code is op.BRANCH:
            return f"(?:{'|'.join(map(self.sequence, argument[1]))})"
        if code is op.SUBPATTERN:
            return self.group(*argument)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self.repeat(code, *argument)
        if code in (op.ASSERT, op.ASSERT_NOT):
            direction, inner = argument
            return f"(?{'<' if direction < 0 else ''}{'=' if code is op.ASSERT else '!'}{self.sequence(inner)})"
        if code is op.AT and argument in self.places:
            return self.places[argument]
        raise self.refused(code)

    def characters(self, items: list[Any]) -> str:
        """Translate what stands between brackets."""
        negated = items[0][0] is op.NEGATE
        rest = items[1:] if negated else items
        if len(rest) == 1 and rest[0][1] in OPPOSITE and rest[0][0] is op.CATEGORY:
            negated, rest = not negated, [(op.CATEGORY, OPPOSITE[rest[0][1]])]
        parts = []
        for code, argument in rest:
            if code is op.RANGE:
                parts.append("-".join(map(_escaped, argument)))
            elif code is op.LITERAL:
                parts.append(_escaped(argument))
            elif argument in self.kinds:
                parts.append(self.kinds[argument])
            else:
                raise self.refused(argument)
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def group(self, number: int | None, added: int, removed: int, inner: Any) -> str:
        if added or removed:
            raise self.refused("a flag for a part")
        name = f"?<{self.names[number]}>" if number in self.names else "?:" if number is None else ""
        return f"({name}{self.sequence(inner)})"

    def repeat(self, code: Any, least: int, most: Any, inner: Any) -> str:
        # What a group holds after several rounds, and whether an empty round counts, differs.
        if most != 1 and (inner.getwidth()[0] == 0 or _has_group(inner)):
            raise self.refused("a repetition of a group, or of what may be empty,")
        times = TIMES.get((least, most), f"{{{least},{'' if most is op.MAXREPEAT else most}}}")
        single = len(inner) == 1 and inner[0][0] in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)
        text = self.sequence(inner)
        return f"{text if single else f'(?:{text})'}{times}{'?' if code is op.MIN_REPEAT else ''}"


def _has_group(items: Any) -> bool:
    """Tell whether a parsed expression has a group that keeps what it matches, at any depth."""
    if isinstance(items, parser.SubPattern):
        return any(
            (code is op.SUBPATTERN and argument[0] is not None) or _has_group(argument) for code, argument in items
        )
    return isinstance(items, (tuple, list)) and any(map(_has_group, items))


def _escaped(code: int) -> str:
    r"""Return a character as it is written anywhere in an expression, between brackets as well.

    >>> [_escaped(ord(character)) for character in "aé- /\n"]
    ['a', 'é', '\\u{2d}', ' ', '\\/', '\\u{a}']
    """
    character = chr(code)
    if character in "^$\\.*+?()[]{}|/":
        return f"\\{character}"
    return character if character != "-" and character.isprintable() else f"\\u{{{code:x}}}"


class PasteBox(SphinxDirective):
    """Shows its content, which JavaScript replaces with the box."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make a container of the content."""
        return [nodes.container("", *self.parse_content_to_nodes(), classes=[CLASS], is_div=True)]


def write_data(app: Sphinx) -> None:
    """Write what the box works with."""
    made = rules(load_entries(), load_ordinary())
    text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
    write_whole(Path(app.outdir, DATA), f"globalThis.explainData = {text};\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and what it needs."""
    app.add_directive(CLASS, PasteBox)
    after_build(app, write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
