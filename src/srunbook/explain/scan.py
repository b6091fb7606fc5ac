"""Read a log, packed or not: the first line of each kind that an entry knows, or that speaks of trouble."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from itertools import chain, islice

from srunbook.explain.entries import Entry, anchor, compiled, expression, load_patterns, most_specific_first, plain

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
GZIP = b"\x1f\x8b"
LONGEST_LINE = 2**16
"""Bytes of a line; a longer one is read as several."""

CONTROLS = bytes(code for code in range(1, 32) if code not in b"\a\b\t\n\v\f\r\x1b")
MOST_CONTROLS = 1 / 30
"""Share of control characters in the first block of a log. Zeros do not count: a log that was cut begins with them."""

PATTERNS = load_patterns()
COLOURS = re.compile(PATTERNS["colours"].encode())
LABEL, VARYING, CHAINED, MEASURED, TASK = (
    compiled(PATTERNS[name]) for name in ("label", "varying", "chained", "measured", "task")
)
ENDED = re.compile(PATTERNS["ended"].encode(), re.MULTILINE)
TIMES = [*map(compiled, PATTERNS["times"])]
STOPPED: str = PATTERNS["stopped"]
TRACEBACK: str = PATTERNS["traceback"]

WORDS = (
    "rror", "ERR", "xception", "ail", "FAIL", "FATAL", "atal", "ault", "illed", "bort", "arn", "WARN", "annot", "an't",
    "nable to", "enied", "efused", "imed out", "imeout", "not found", "No such", "nvalid", "Interrupt", "Exit",
    "space left", "exceeded", "dumped", "erminat", ".cc:", ".cpp:", ".cu:", ".py:",
)  # fmt: skip
"""One of these stands in every line that speaks of trouble."""


class Trouble(IntEnum):
    """How clearly a line shows trouble: the last three can be why a job ended; ENDED says which task ended first."""

    NONE = 0
    ENDED = 1
    HINT = 2
    ERROR = 3
    HARD = 4
    EXCEPTION = 5


LEVELS = [(Trouble[level["level"]], compiled("|".join(level["patterns"]))) for level in PATTERNS["levels"]]


@dataclass(frozen=True)
class Finding:
    """The first line of its kind in a log.

    Args:
        slug: The entry that it matches; empty for a line that only shows trouble.
        weight: How clearly it shows trouble.
        text: The line without labels.
        log: Name of the log.
        number: Number of the line, from 1.
        rank: The rank that printed it, or None if that is unknown.
        time: When it was printed, in seconds of a year, or None if neither it nor an earlier line has a time.
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
    """What one log holds."""

    findings: list[Finding] = field(default_factory=list)  # in the order of the log
    hosts: dict[int, str] = field(default_factory=dict)  # nodes by rank, as far as the log names them
    ends: set[tuple[int, int]] = field(default_factory=set)  # rank and world size of the end lines
    traceback: Finding | None = None  # the line with which the first one begins
    last_end: int = 0  # number of the last line that says a rank or the training came to its end
    size: int = 0  # bytes that were read
    problems: list[str] = field(default_factory=list)  # what could not be read


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
            (slug, anchor(form), compiled(expression(form))) for slug, form in most_specific_first(entries)
        ]
        self.ordinary = frozenset(ordinary)
        self.followers = {"", *(slug for slug, entry in entries.items() if entry.role == "consequence")}

    def scan(self, name: str, blocks: Iterable[bytes]) -> Scanned:
        """Read one log.

        Args:
            name: What findings call it. A name with `rank_3` in it tells the rank.
            blocks: Its content in pieces of any size.
        """
        scanned, kinds, started = Scanned(), set[bytes](), set[int]()
        findings = scanned.findings
        clock: float | None = None
        before: list[bytes] = []
        for lines in read_lines(_counted(blocks, scanned), scanned.problems):
            texts = [text for _, text in lines]
            whole = b"\n".join(texts)
            if lines[0][0] == 1 and len(whole) - len(whole.translate(None, CONTROLS)) > MOST_CONTROLS * len(whole):
                return Scanned(problems=["a binary file, expected a log"])
            _note_hosts(whole, scanned.hosts, started)
            if scanned.traceback is None and (place := whole.find(TRACEBACK.encode())) >= 0:
                number = lines[whole.count(b"\n", 0, place)][0]
                scanned.traceback = Finding("", Trouble.ERROR, TRACEBACK, name, number)
            for end in ENDED.finditer(whole):
                scanned.last_end = lines[whole.count(b"\n", 0, end.start())][0]
                scanned.ends |= {(int(end[1]), int(end[2]))} if end[1] else set()
            judged = self._judged(name, lines, _new(whole, kinds))
            for place, finding in islice(judged, MOST_FINDINGS - len(findings)):
                time = _time_of([*before, *texts[max(0, place - LOOK_BACK) : place + 1]][-LOOK_BACK:])
                clock = clock if time is None else time
                findings.append(replace(finding, time=clock))
            before = [*before, *(text[:LONGEST_QUOTE] for text in texts[-LOOK_BACK:])][-LOOK_BACK:]
        named = RANK_OF_NAME.search(name)
        rank = int(named[1]) if named else next(iter(started)) if len(started) == 1 else None
        scanned.findings = [
            replace(finding, rank=rank) if finding.rank is None and finding.weight is not Trouble.ENDED else finding
            for finding in self._without_chained(findings)
        ]
        return scanned

    def _judged(self, name: str, lines: list[tuple[int, bytes]], places: list[int]) -> Iterator[tuple[int, Finding]]:
        """Yield the findings among the lines at some places, with their places."""
        text = plain(b"\n".join([lines[place][1] for place in places]).decode("utf-8", errors="replace"))
        active = [pattern for pattern in self.patterns if pattern[1] in text]
        words = [word for word in WORDS if word in text]
        if not active and not words:
            return
        for place, line in zip(places, text.split("\n"), strict=True):
            slug = next((slug for slug, needed, form in active if needed in line and form.search(line)), "")
            if not slug and not any(word in line for word in words):
                continue
            number, whole = lines[place]
            message, rank = strip_labels(whole.decode("utf-8", errors="replace"))
            if CHAINED.match(message):
                yield place, Finding("", Trouble.NONE, message, name, number, rank)
                continue
            weight = trouble(message)
            if weight is Trouble.ENDED:
                rank = task_of(message)
            elif not slug and (weight is Trouble.NONE or shape(message) in self.ordinary):
                continue
            yield place, Finding(slug, weight, message[:LONGEST_QUOTE], name, number, rank)

    def _without_chained(self, findings: Iterable[Finding]) -> list[Finding]:
        """Drop the marks between exceptions of a traceback, and the one above each, unless it is known as a cause."""
        kept: list[Finding] = []
        for finding in findings:
            if finding.weight is not Trouble.NONE or finding.slug:
                kept.append(finding)
                continue
            for other in kept[-MOST_BETWEEN:]:
                if (
                    other.number >= finding.number - MOST_BETWEEN
                    and other.slug in self.followers
                    and other.rank == finding.rank
                ):
                    kept.remove(other)
        return kept


def _counted(blocks: Iterable[bytes], scanned: Scanned) -> Iterator[bytes]:
    for block in blocks:
        scanned.size += len(block)
        yield block


def _new(text: bytes, kinds: set[bytes]) -> list[int]:
    """Return the places of the lines of a kind that was not seen before, and remember the kinds."""
    shapes = text.translate(None, b"0123456789").split(b"\n")
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


def read_lines(blocks: Iterable[bytes], problems: list[str]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines without their ends, many at a time, each with its number in the file.

    What a progress bar overwrote is a line of its own, with the same number. `problems` gets a sentence where the
    content is damaged.
    """
    rest, number = b"", 1
    for block in chain(unpack(blocks, problems), [b"\n"]):
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if len(rest) > LONGEST_LINE:
            end, rest = len(data), b""
        if end:
            whole = data[:end].removesuffix(b"\n")
            yield [
                (place, piece[start : start + LONGEST_LINE])
                for place, text in enumerate(COLOURS.sub(b"", whole).split(b"\n"), number)
                for piece in text.split(b"\r")
                for start in range(0, len(piece) or 1, LONGEST_LINE)
            ]
            number += whole.count(b"\n") + (data[end - 1 : end] == b"\n")


def unpack(blocks: Iterable[bytes], problems: list[str]) -> Iterator[bytes]:
    """Yield the content, unpacked if it begins like a file of gzip; of one that was cut off, what is there."""
    stream = iter(blocks)
    first = next(stream, b"")
    if not first.startswith(GZIP):
        yield first
        yield from stream
        return
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for left in chain([first], stream):
        while left:
            if unpacker.eof:
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield unpacker.decompress(left)
            except zlib.error:
                problems.append("the gzip file is damaged: only what comes before the damage was read")
                return
            left = unpacker.unused_data
    if not unpacker.eof:
        problems.append("the gzip file is cut off: only what it holds was read")


def strip_labels(line: str) -> tuple[str, int | None]:
    """Take launchers' labels and the time off the beginning of a line; return the message, and the rank they name.

    >>> strip_labels("2: [rank5]: ValueError: no")
    ('ValueError: no', 5)
    >>> strip_labels("[default0]:2026-11-20 10:00:00,123 - it fails")
    ('it fails', None)
    """
    rank, place = None, 0
    while label := LABEL.match(line, place):
        rank, place = int(label[label.lastindex]) if label.lastindex else rank, label.end()
    if time := TIMES[0].match(line, place):
        place = time.end()
    return line[place:].strip(), rank


def time_of(line: str) -> float | None:
    """Return when a line was printed, in seconds of a year, by the clock it was printed by; None if it does not say.

    >>> time_of("[E1123 04:43:34.5 socket.cpp]") - time_of("2026-11-23T04:43:34")
    0.5
    """
    for match in chain.from_iterable(pattern.finditer(line) for pattern in TIMES):
        month, day, hour, minute, second = map(int, match.groups()[:5])
        try:
            moment = datetime(2000, month, day, hour, minute, second)  # a leap year: it has every day
        except ValueError:
            continue
        return (moment - datetime(2000, 1, 1)).total_seconds() + float(f"0.{match[6] or 0}")
    return None


def trouble(text: str) -> Trouble:
    """Judge a line without its labels, whether or not an entry knows it.

    >>> [trouble(text).name for text in ("step 3", "ValueError: no", "srun: error: node1: task 0: Terminated")]
    ['NONE', 'EXCEPTION', 'ENDED']
    """
    text = MEASURED.sub("", text)
    return next((level for level, pattern in LEVELS if pattern.search(text)), Trouble.NONE)


def task_of(text: str) -> int | None:
    """Return the rank of which srun says how it ended; None where it speaks of several, or of the step."""
    match = TASK.match(text)
    return int(match[2]) if match and match[2].isdecimal() else None


def ended_first(line: str) -> str:
    """Return who ended first and how, in words; an empty text if the line tells of no task that ended by itself.

    >>> ended_first("srun: error: node4: task 1: Exited with exit code 1")
    'Rank 1 on node4 ended first, with exit code 1; nothing it printed says why.'
    >>> ended_first("srun: error: node2: tasks 4-7: Killed")
    'Ranks 4-7 on node2 ended first, by a signal (Killed); nothing they printed says why.'
    >>> ended_first("srun: error: node3: task 0: Terminated")
    ''
    """
    match = TASK.match(line)
    if not match or match[4] == STOPPED:
        return ""
    host, ranks, code, signal = match.groups()
    who, they = ("Rank", "it") if ranks.isdecimal() else ("Ranks", "they")
    how = f"with {code}" if code else f"by a signal ({signal})"
    return f"{who} {ranks} on {host} ended first, {how}; nothing {they} printed says why."
