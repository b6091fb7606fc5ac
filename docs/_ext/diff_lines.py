"""The lines of two files compared: which are new or gone, which to hide, and which belong to a part of the change."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from repository import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTEXT = 3
"""Unchanged lines that stay visible on each side of a change."""

CONTEXT_OF_PART = 1
"""The same where a page shows one change beside its reason."""

ALIKE = 0.7
"""Part of two lines that must be equal for the one to count as the changed form of the other."""

SHORTEST_GAP = 4
"""Hide unchanged lines only where at least so many of them would go."""


def compare(before: list[str], after: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the lines of two files in reading order.

    Yields:
        A mark and a line's index: `-` and its index in `before`, `+` or ` ` (unchanged) and its index in `after`.

    >>> list(compare(["a", "b"], ["a", "c"]))
    [(' ', 0), ('-', 1), ('+', 1)]
    """
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal":
            yield from ((" ", index) for index in range(start, end))
        else:
            for mark, index in pair_up(before[first:last], after[start:end]):
                yield mark, index + (first if mark == "-" else start)


def pair_up(gone: list[str], new: list[str]) -> Iterator[tuple[str, int]]:
    """Order the lines of a change such that a removed line stands before the new one that resembles it.

    Neighbours stay together: all that are gone, then all that are new.

    >>> list(pair_up(["for epoch in range(5):"], ["first = 2", "for epoch in range(first, 5):"]))
    [('+', 0), ('-', 0), ('+', 1)]
    >>> list(pair_up(["size = 4", "rate = 2"], ["size = 5", "rate = 3"]))
    [('-', 0), ('-', 1), ('+', 0), ('+', 1)]
    """
    pairs, start = [], 0
    for index, line in enumerate(gone):
        found = [(SequenceMatcher(None, line, new[at], autojunk=False).ratio(), -at) for at in range(start, len(new))]
        best, at = max(found, default=(0.0, 0))
        if best >= ALIKE:
            pairs.append((index, -at))
            start = 1 - at
    old = fresh = 0
    while pairs:
        together = [pairs.pop(0)]
        while pairs and pairs[0][1] == together[-1][1] + 1:
            together.append(pairs.pop(0))
        yield from (("-", index) for index in range(old, together[0][0]))
        yield from (("+", at) for at in range(fresh, together[0][1]))
        yield from (("-", index) for index in range(together[0][0], together[-1][0] + 1))
        yield from (("+", at) for _, at in together)
        old, fresh = together[-1][0] + 1, together[-1][1] + 1
    yield from (("-", index) for index in range(old, len(gone)))
    yield from (("+", at) for at in range(fresh, len(new)))


def counted(before: list[str], after: list[str]) -> tuple[int, int]:
    """Count the lines added and removed, blank ones aside.

    >>> counted(["a", "b"], ["a", "", "c", "d"])
    (2, 1)
    """
    marks = list(compare(before, after))
    added = sum(mark == "+" and bool(after[index].strip()) for mark, index in marks)
    removed = sum(mark == "-" and bool(before[index].strip()) for mark, index in marks)
    return added, removed


def hidden(marks: str) -> list[tuple[int, int]]:
    """Return the runs of unchanged lines to hide, as positions from and up to.

    >>> hidden("+" + " " * 12 + "-")
    [(4, 10)]
    >>> hidden(" " * 9 + "+")
    [(0, 6)]
    """
    runs, start = [], 0
    while start < len(marks):
        end = start
        while end < len(marks) and marks[end] == " ":
            end += 1
        first = start + CONTEXT if start else 0
        last = end - CONTEXT if end < len(marks) else end
        if last - first >= SHORTEST_GAP:
            runs.append((first, last))
        start = end + 1
    return runs


def texts_of(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    """Return mark and text of each line of two files, in the order of `compare`."""
    return [(mark, (before if mark == "-" else after)[index]) for mark, index in compare(before, after)]


def choose(lines: list[tuple[str, str]], wanted: str) -> list[int]:
    """Return the positions of the changed lines of a range.

    Args:
        lines: Mark and text of each line.
        wanted: `TEXT ... TEXT`: from the first changed line with one to the last with the other; or `TEXT`: the run of
            changed lines around the first that contains it.

    Raises:
        FileError: No changed line contains a text, or the second comes before the first.

    >>> lines = [("+", "import os"), (" ", ""), ("-", "x = 1"), ("+", "x = 2"), (" ", ""), ("+", "print(x)")]
    >>> choose(lines, "x = 2"), choose(lines, "x = 2 ... print")
    ([2, 3], [3, 5])
    """
    first, dots, last = (text.strip() for text in wanted.partition(" ... "))
    changed = [position for position, (mark, _) in enumerate(lines) if mark != " "]
    places = {text: [position for position in changed if text in lines[position][1]] for text in (first, last)}
    for text in filter(None, (first, last)):
        if not places[text]:
            raise FileError(f"no changed line contains {text!r}")
    start, end = places[first][0], places[last][-1] if dots else places[first][0]
    if end < start:
        raise FileError(f"the last changed line with {last!r} comes before the first with {first!r}")
    if not dots:
        while lines[start - 1][0] != " " and start:
            start -= 1
        while end + 1 < len(lines) and lines[end + 1][0] != " ":
            end += 1
    return [position for position in changed if start <= position <= end]


def around(lines: list[tuple[str, str]], chosen: list[int]) -> list[int]:
    """Return the positions to show of a part: its changed lines and the unchanged ones next to them.

    >>> around([(" ", "a"), (" ", "b"), ("+", "c"), ("-", "d"), (" ", "e")], [2])
    [1, 2]
    """
    shown = set(chosen)
    for position in chosen:
        for step in (-1, 1):
            for near in range(position + step, position + step * (CONTEXT_OF_PART + 1), step):
                if not (0 <= near < len(lines) and lines[near][0] == " " and lines[near][1].strip()):
                    break
                shown.add(near)
    return sorted(shown)
