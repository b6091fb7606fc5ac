"""Find in a log the first line of each kind that an entry knows, or that speaks of trouble."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from srunbook.explain._ended import TASK
from srunbook.explain._entries import Entry
from srunbook.explain._forms import anchor, expression
from srunbook.explain._labels import strip_labels, time_of
from srunbook.explain._reading import Lines, read_lines
from srunbook.explain._trouble import CHAINED, WORDS, Trouble, trouble

DIGITS = b"0123456789"
MOST_KINDS = 100_000
"""Kinds of lines that are remembered of a log; a log with more has some of them judged twice."""

MOST_FINDINGS = 1000
LONGEST_QUOTE = 500
MOST_BETWEEN = 4
"""Lines between an exception and the mark below it."""

LOOK_BACK = 200
"""Lines before a finding that are searched for the time."""

RANK_START = re.compile(rb"rank (\d+)/\d+ start\b.*?\bhost=(\S+)")
TASK_ENDED = re.compile(rb"srun: error: (\S+): task (\d+): ")
RANK_OF_NAME = re.compile(r"rank[_-]?(\d{1,6})(?!.*rank[_-]?\d)")
VARYING = re.compile(r"0x[0-9a-f]+|(?:[0-9a-f]*:){3,}[0-9a-f]*|\d+")


@dataclass(frozen=True)
class Finding:
    """The first line of its kind in a log.

    Args:
        slug: The entry that knows it; empty for a line that only speaks of trouble.
        weight: How loudly it speaks.
        text: The line without labels.
        log: Name of the log.
        number: Number of the line, from 1.
        rank: The rank that printed it, or None where nothing says so.
        time: When, in seconds of a year, or None where no line up to it says so.
    """

    slug: str
    weight: Trouble
    text: str
    log: str
    number: int
    rank: int | None = None
    time: float | None = None


@dataclass
class Scanned:
    """What one log holds.

    Args:
        findings: The findings, in the order of the log.
        hosts: Nodes by rank, as far as the log names them.
        size: Bytes that were read, unpacked.
        problems: What could not be read.
    """

    findings: list[Finding] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    size: int = 0
    problems: list[str] = field(default_factory=list)


class Pattern(NamedTuple):
    """A form of an entry's message."""

    slug: str
    anchor: bytes
    expression: re.Pattern[str]


def shape(text: str) -> str:
    """Return what lines that differ in numbers alone have in common."""
    return VARYING.sub("", text)


class Scanner:
    """Reads logs with the patterns of some entries.

    A log repeats itself: its lines are compared without their digits, and only the first of a kind is judged.

    Args:
        entries: The entries, by slug.
        ordinary: Shapes of the lines that speak of trouble and that good runs print, too.
    """

    def __init__(self, entries: Mapping[str, Entry], ordinary: Iterable[str] = ()) -> None:
        self.patterns = [
            Pattern(slug, anchor(form), re.compile(expression(form)))
            for slug, entry in entries.items()
            for form in entry.messages
        ]
        self.ordinary = frozenset(ordinary)

    def scan(self, name: str, blocks: Iterable[bytes]) -> Scanned:
        """Read one log.

        Args:
            name: What findings call it. A name with `rank_3` in it tells the rank.
            blocks: Its content in pieces of any size.

        Raises:
            OSError: As reading the content does.
        """
        scanned, kinds = Scanned(), set[bytes]()
        named = RANK_OF_NAME.search(name)
        started: set[int] = set()
        clock: float | None = None
        before: list[bytes] = []
        for lines in read_lines(_counted(blocks, scanned), scanned.problems):
            whole = b"\n".join(lines.texts)
            _note_hosts(whole, scanned.hosts, started)
            if len(scanned.findings) == MOST_FINDINGS:
                continue
            places = _new(whole, kinds)
            text = b"\n".join([lines.texts[place] for place in places])
            for place, finding in self._judged(name, lines, places, text):
                time = _time_of([*before, *lines.texts[max(0, place - LOOK_BACK) : place + 1]][-LOOK_BACK:])
                clock = clock if time is None else time
                scanned.findings.append(_at(finding, clock))
                if len(scanned.findings) == MOST_FINDINGS:
                    break
            before = [*before, *(text[:LONGEST_QUOTE] for text in lines.texts[-LOOK_BACK:])][-LOOK_BACK:]
        scanned.findings = _without_chained(scanned.findings)
        rank = int(named[1]) if named else next(iter(started)) if len(started) == 1 else None
        scanned.findings = [_of_rank(finding, rank) for finding in scanned.findings]
        return scanned

    def _judged(self, name: str, lines: Lines, places: list[int], text: bytes) -> Iterator[tuple[int, Finding]]:
        """Yield the findings among some lines, with their places."""
        active = [pattern for pattern in self.patterns if pattern.anchor in text]
        words = [word for word in WORDS if word in text]
        if not active and not words:
            return
        loud = re.compile(b"|".join(map(re.escape, words))) if words else None
        for place in places:
            line = lines.texts[place]
            known = [pattern for pattern in active if pattern.anchor in line]
            if not known and not (loud and loud.search(line)):
                continue
            whole = line.decode("utf-8", errors="replace")
            own, rank = strip_labels(whole)
            slugs = dict.fromkeys(pattern.slug for pattern in known if pattern.expression.search(whole))
            if CHAINED.match(own):
                yield place, Finding("", Trouble.NONE, own, name, lines.numbers[place], rank)
                continue
            weight = trouble(own)
            if weight is Trouble.ENDED:
                rank = _task_of(own)
            elif not slugs and (weight is Trouble.NONE or shape(own) in self.ordinary):
                continue
            for slug in slugs or [""]:
                yield place, Finding(slug, weight, own[:LONGEST_QUOTE], name, lines.numbers[place], rank)


def _task_of(text: str) -> int | None:
    """Return the rank of which srun says how it ended; None where it speaks of several, or of the step."""
    found = TASK.match(text)
    return int(found["rank"]) if found and found["rank"] else None


def _without_chained(findings: Iterable[Finding]) -> list[Finding]:
    """Drop the marks between the exceptions of a traceback, and the exception above each, which led to that below."""
    kept: list[Finding] = []
    for finding in findings:
        if finding.weight is not Trouble.NONE or finding.slug:
            kept.append(finding)
            continue
        near = [other for other in kept[-MOST_BETWEEN:] if other.number >= finding.number - MOST_BETWEEN]
        for other in near:
            if not other.slug and other.rank == finding.rank:
                kept.remove(other)
    return kept


def _counted(blocks: Iterable[bytes], scanned: Scanned) -> Iterator[bytes]:
    for block in blocks:
        scanned.size += len(block)
        yield block


def _new(text: bytes, kinds: set[bytes]) -> list[int]:
    """Return the places of the lines of a kind that was not seen before, and remember the kinds."""
    shapes = text.translate(None, DIGITS).split(b"\n")
    fresh = set(shapes) - kinds
    if not fresh:
        return []
    if len(kinds) > MOST_KINDS:
        kinds.clear()
    kinds |= fresh
    places = []
    for place, kind in enumerate(shapes):
        if kind in fresh:
            fresh.discard(kind)
            places.append(place)
    return places


def _note_hosts(text: bytes, hosts: dict[int, str], started: set[int]) -> None:
    if b" start" in text:  # every rank says so, in lines that differ in numbers alone
        for rank, host in RANK_START.findall(text):
            started.add(int(rank))
            hosts[int(rank)] = host.decode("utf-8", errors="replace")
    if b"srun: error: " in text:
        for host, rank in TASK_ENDED.findall(text):
            hosts.setdefault(int(rank), host.decode("utf-8", errors="replace"))


def _time_of(texts: list[bytes]) -> float | None:
    """Return the time of the last line, or of the nearest one before it that says it."""
    for text in reversed(texts):
        if b":" in text:
            time = time_of(text[:LONGEST_QUOTE].decode("utf-8", errors="replace"))
            if time is not None:
                return time
    return None


def _at(finding: Finding, time: float | None) -> Finding:
    return Finding(**{**vars(finding), "time": time})


def _of_rank(finding: Finding, rank: int | None) -> Finding:
    known = finding.rank is not None or finding.weight is Trouble.ENDED
    return finding if known else Finding(**{**vars(finding), "rank": rank})
