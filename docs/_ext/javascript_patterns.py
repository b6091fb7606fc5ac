r"""Translates Python's regular expressions into JavaScript's, of the same meaning.

The two languages differ in what `\w`, `\d`, `\s`, `\b` and `$` mean, in the names of groups, and in verbose
expressions. So the translation starts from what Python has parsed. What has no equal in JavaScript is refused: the
build fails, and the expression has to be written in another way.
"""

from __future__ import annotations

import re
from re import _constants as op  # type: ignore[attr-defined]  # the parser that `re` itself uses
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

SPACE = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
KINDS = {
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


class PatternError(ValueError):
    """An expression has no equal in JavaScript; the message names it and what to avoid."""


class Javascript(NamedTuple):
    """An expression for JavaScript.

    Args:
        source: Its text.
        flags: Its flags; never `g` or `y`, which say how it is used.
    """

    source: str
    flags: str


def javascript(pattern: re.Pattern[str] | re.Pattern[bytes]) -> Javascript:
    r"""Translate an expression. One of bytes becomes one of texts in which each character stands for a byte.

    Raises:
        PatternError: It has no equal.

    >>> print(javascript(re.compile(r"(?P<rank>\d+): \w")).source)
    (?<rank>[\p{Decimal_Number}]+): [\p{L}\p{N}_]
    >>> javascript(re.compile(r"(a)\1"))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    javascript_patterns.PatternError: (a)\1: a reference to a group has no equal in JavaScript here
    """
    return _Translator(pattern).translate()


class _Translator:
    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self.pattern = pattern
        self.kinds = KINDS[str if isinstance(pattern.pattern, str) else bytes]
        self.names = {number: name for name, number in pattern.groupindex.items()}

    def translate(self) -> Javascript:
        flags = self.pattern.flags
        if flags & ~FLAGS:
            raise self.refused(f"the flag {re.RegexFlag(flags & ~FLAGS).name}")
        if flags & re.IGNORECASE and isinstance(self.pattern.pattern, bytes):
            raise self.refused("bytes without regard to case")
        source = self.sequence(parser.parse(self.pattern.pattern, flags))
        return Javascript(source, "iu" if flags & re.IGNORECASE else "u")

    def refused(self, what: str) -> PatternError:
        text = self.pattern.pattern
        shown = text if isinstance(text, str) else text.decode("latin-1")
        return PatternError(f"{shown}: {what} has no equal in JavaScript here")

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
        if code is op.AT:
            return self.place(argument)
        what = "a reference to a group" if code in (op.GROUPREF, op.GROUPREF_EXISTS) else str(code).lower()
        raise self.refused(what)

    def characters(self, items: list[Any]) -> str:
        """Translate what stands between brackets."""
        negated = items[0][0] is op.NEGATE
        rest = items[1:] if negated else items
        if len(rest) == 1 and rest[0][0] is op.CATEGORY and rest[0][1] in OPPOSITE:
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
                raise self.refused("the opposite of a kind of characters beside others")
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def group(self, number: int | None, added: int, removed: int, inner: Any) -> str:
        if added or removed:
            raise self.refused("a flag for a part")
        if number is None:
            return f"(?:{self.sequence(inner)})"
        return f"({f'?<{self.names[number]}>' if number in self.names else ''}{self.sequence(inner)})"

    def repeat(self, code: Any, least: int, most: Any, inner: Any) -> str:
        if most != 1:  # what a group holds after several rounds, and whether an empty round counts, differs
            if any(kind is op.SUBPATTERN and of[0] is not None for kind, of in _within(inner)):
                raise self.refused("a group that is repeated")
            if inner.getwidth()[0] == 0:
                raise self.refused("a repetition of what may be empty")
        many = "" if most is op.MAXREPEAT else str(most)
        times = {(0, op.MAXREPEAT): "*", (1, op.MAXREPEAT): "+", (0, 1): "?"}.get((least, most), f"{{{least},{many}}}")
        single = len(inner) == 1 and inner[0][0] in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)
        text = self.sequence(inner)
        return f"{text if single else f'(?:{text})'}{times}{'?' if code is op.MIN_REPEAT else ''}"

    def place(self, where: Any) -> str:
        word = self.kinds[op.CATEGORY_WORD]
        before, after = f"(?<=[{word}])", f"(?=[{word}])"
        no_before, no_after = f"(?<![{word}])", f"(?![{word}])"
        places = {
            op.AT_BEGINNING: "^",
            op.AT_BEGINNING_STRING: "^",
            op.AT_END: r"(?=\n?$)",
            op.AT_END_STRING: "$",
            op.AT_BOUNDARY: f"(?:{before}{no_after}|{no_before}{after})",
            op.AT_NON_BOUNDARY: f"(?:{before}{after}|{no_before}{no_after})",
        }
        return places[where]


def _within(items: Any) -> Any:
    """Yield all parts of a parsed expression, at any depth."""
    for code, argument in items:
        yield code, argument
        for part in argument if isinstance(argument, tuple) else ():
            branches = part if isinstance(part, list) else [part]
            for branch in branches:
                if isinstance(branch, parser.SubPattern):
                    yield from _within(branch)


def _escaped(code: int) -> str:
    r"""Return a character as it is written anywhere in an expression, between brackets as well.

    >>> [_escaped(ord(character)) for character in "aé- /\n"]
    ['a', 'é', '\\u{2d}', ' ', '\\/', '\\u{a}']
    """
    character = chr(code)
    if character in "^$\\.*+?()[]{}|/":
        return f"\\{character}"
    return character if character != "-" and character.isprintable() else f"\\u{{{code:x}}}"
