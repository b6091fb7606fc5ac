"""Decide which finding is the cause and which ones follow from it, and report it as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from srunbook._text import printable
from srunbook.explain.entries import load_entries, page_of
from srunbook.explain.hangs import Hang
from srunbook.explain.scan import TRACEBACK, Finding, Scanned, Trouble, ended_first

NEAR = 300
"""Lines of a traceback around a line that an entry knows; what they say belongs to it."""

MOST_TO_SEARCH = 3
MOST_SHOWN = 5
"""Consequences that the text names."""

SCHEMA = 1
SAYS_NOTHING = "slurm-rank-says-nothing"
"""The entry that tells what to do where a rank ended and no line says why."""

PAGE_OF_HANGS = "https://srunbook.readthedocs.io/en/latest/tools/hangs.html"


@dataclass(frozen=True)
class Diagnosis:
    """Why a job failed.

    Args:
        cause: The first failure, or None if no line looks like a failure. Without a slug, it matches no entry; with the
            weight `ENDED`, it says only which task ended first.
        consequences: What followed, the first line of each entry.
        warnings: Lines of entries that good runs also print.
        to_search: The lines most worth searching for, if no entry matches the cause.
        healthy: Whether nothing failed; `to_search` then has lines of a job that finished.
        hosts: Nodes by rank, as far as the logs show them.
    """

    cause: Finding | None
    consequences: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    to_search: tuple[Finding, ...] = ()
    healthy: bool = False
    hosts: Mapping[int, str] = field(default_factory=dict)


def diagnose(logs: Iterable[Scanned], *, completed: bool = False) -> Diagnosis:
    """Find the cause among the findings of all logs.

    What an entry knows as a cause comes before what it knows as a consequence, whatever the times say: a rank that
    waits can give up before the rank it waits for has printed why it came late. Among the rest the first one counts.

    Args:
        logs: What each log holds.
        completed: Whether accounting says that the job and all its steps ended well. A line that no entry knows is
            then no failure.
    """
    logs = list(logs)
    hosts = {rank: host for log in logs for rank, host in log.hosts.items()}
    findings = [finding for log in logs for finding in log.findings]
    known = _without_explained([finding for finding in findings if finding.slug])
    failures = [finding for finding in known if _role(finding) != "warning"]
    warnings = [finding for finding in known if _role(finding) == "warning"]
    unknown = [finding for finding in findings if not finding.slug and not _belongs(finding, failures)]
    survived = unknown if completed else [*_survived(unknown, logs)]
    serious = [finding for finding in unknown if finding not in survived]
    loud = [finding for finding in serious if finding.weight >= Trouble.HARD]
    if not failures and not loud and not completed:
        loud = [finding for finding in serious if finding.weight is Trouble.ERROR] or _ended(logs) or _cut(logs)
    first = _first(loud, failures)
    followed = [finding for finding in _first_of_each(failures) if not first or finding.slug != first.slug]
    spoken = [finding for finding in unknown if finding.weight is not Trouble.ENDED]
    candidates = [finding for finding in spoken if finding.weight >= Trouble.HARD or not _is_near(finding, failures)]
    candidates.sort(key=lambda finding: (finding is not first, -finding.weight))
    to_search = [] if first and first.slug else _first_of_each(candidates, "text")[:MOST_TO_SEARCH]
    healthy = first is None and any(each in survived and each.weight > Trouble.HINT for each in to_search)
    return Diagnosis(first, tuple(followed), tuple(_first_of_each(warnings)), tuple(to_search), healthy, hosts)


def _survived(unknown: Iterable[Finding], logs: Sequence[Scanned]) -> Iterator[Finding]:
    """Yield the lines that the end of the training follows: of all ranks, or for an error in one line, of any."""
    ends = {end for log in logs for end in log.ends}
    whole = bool(ends) and all((rank, size) in ends for _, size in ends for rank in range(size))
    last = {finding.log: log.last_end for log in logs for finding in log.findings}
    for finding in unknown:
        if finding.number < last[finding.log] and (whole if ends else finding.weight < Trouble.HARD):
            yield finding


def _ended(logs: Iterable[Scanned]) -> list[Finding]:
    """Return, of each log, the task that ended first, unless its step was ended as a whole before."""
    ended = ([finding for finding in log.findings if finding.weight is Trouble.ENDED] for log in logs)
    return [findings[0] for findings in ended if findings and not findings[0].slug and ended_first(findings[0].text)]


def _cut(logs: Iterable[Scanned]) -> list[Finding]:
    """Return where tracebacks begin in logs that break off before the exception."""
    whole = [log for log in logs if not any(each.weight is Trouble.EXCEPTION for each in log.findings)]
    return [log.traceback for log in whole if log.traceback]


def _role(finding: Finding) -> str:
    entry = load_entries()[finding.slug]
    return "cause" if entry.explains else entry.role


def _without_explained(known: Sequence[Finding]) -> list[Finding]:
    """Drop the messages that another entry explains, and the entries whose consequence did not come."""
    entries = {finding.slug: load_entries()[finding.slug] for finding in known}
    explains = {slug: {*entry.explains} for slug, entry in entries.items()}
    alone = {slug for slug, entry in entries.items() if entry.role != "warning" or not entry.explains}
    came = {slug for slug, others in explains.items() if slug in alone or others & explains.keys()}
    explained = {other for slug in came for other in explains[slug]}
    return [finding for finding in known if finding.slug in came - explained]


def _belongs(finding: Finding, failures: Iterable[Finding]) -> bool:
    """Return whether a line is part of what a rank reports of a failure that an entry knows.

    What a rank prints before a consequence may be the cause of it.
    """
    of_this_rank = [failure for failure in failures if failure.rank == finding.rank]
    return _is_near(
        finding, [other for other in of_this_rank if finding.number >= other.number or _role(other) == "cause"]
    )


def _is_near(finding: Finding, failures: Iterable[Finding]) -> bool:
    """Return whether a line stands beside one that an entry knows."""
    return any(failure.log == finding.log and abs(failure.number - finding.number) < NEAR for failure in failures)


def _first(unknown: Iterable[Finding], failures: Iterable[Finding]) -> Finding | None:
    causes = [*unknown, *(finding for finding in failures if _role(finding) != "consequence")]
    candidates = causes or [*failures]
    if all(finding.time is not None for finding in candidates):
        return min(candidates, key=lambda finding: finding.time or 0.0, default=None)
    # Without times, the order is known within a log only; a line that an entry knows tells more than one it does not.
    return min(candidates, key=lambda finding: (not finding.slug, -finding.weight))


def _first_of_each(findings: Iterable[Finding], name: str = "slug") -> list[Finding]:
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(getattr(finding, name), finding)
    return list(first.values())


class Status(IntEnum):
    """Exit statuses of `srunbook explain`."""

    EXPLAINED = 0  # an entry explains the first failure, or dumps show where ranks wait
    BAD_INPUT = 2  # a log, a dump or a job could not be read; what the others say is printed
    UNKNOWN = 3  # something failed that no entry knows, or a rank ended and no line says why
    NOTHING_FAILED = 4  # no line looks like a failure


@dataclass(frozen=True)
class Report:
    """The report on some logs.

    Args:
        diagnosis: Why the job failed.
        logs: Names and sizes in bytes of the logs that were read.
        job: Number of the job, or None.
        state: State of the job, in words.
        mask: A function that masks what strangers must not read; by default, it masks nothing.
        hangs: Where ranks wait, according to their dumps.
        dumps: Names of the dumps that were read.
    """

    diagnosis: Diagnosis
    logs: Sequence[tuple[str, int]]
    job: str | None = None
    state: str = ""
    mask: Callable[[str], str] = str
    hangs: Sequence[Hang] = ()
    dumps: Sequence[str] = ()

    @property
    def status(self) -> Status:
        """Return the exit status, as far as the logs decide it."""
        cause = self.diagnosis.cause
        if self.hangs or (cause and cause.slug):
            return Status.EXPLAINED
        return Status.UNKNOWN if cause else Status.NOTHING_FAILED

    def text(self) -> str:
        """Return the report for people."""
        diagnosis = self.diagnosis
        lines = [f"Job {self.job}: {self.state}"] if self.job and self.state else []
        lines += self._of_dumps() if self.dumps else []
        if diagnosis.cause:
            lines += self._of_cause(diagnosis.cause)
        elif diagnosis.healthy:
            lines.append("The job looks healthy: it came to its end after these lines, which are warnings.")
        elif not self.hangs:
            read = f"{len(self.logs)} log{'' if len(self.logs) == 1 else 's'}"
            lines.append(f"Nothing in {read} looks like a failure." if self.logs else "No log was read.")
            if self.state and not self.state.startswith("COMPLETED"):  # where verify would only lead back
                lines += ["", *self._advice(SAYS_NOTHING)]
            else:
                lines.append(f"To check that the job did what it should: srunbook verify {self.job or 'JOBID'}")
        others = [finding for finding in diagnosis.to_search if finding is not diagnosis.cause]
        if others:
            worth = f"Worth searching for{' as well' if diagnosis.cause else ''}:"
            lines += ["", *([] if diagnosis.healthy else [worth, ""]), *map(self._quote, others)]
        lines += ["", "What followed:"] if diagnosis.consequences else []
        for finding in diagnosis.consequences[:MOST_SHOWN]:
            lines += ["", f"  {self._place(finding)}", self._quote(finding), *self._advice(finding.slug)]
        lines += ["", "No failure, but worth reading:"] if diagnosis.warnings else []
        for finding in diagnosis.warnings:
            lines += ["", self._quote(finding), *self._advice(finding.slug)]
        return "\n".join(lines).rstrip("\n") + "\n"

    def _of_cause(self, cause: Finding) -> list[str]:
        if cause.slug:
            return [f"The first failure: {self._place(cause)}", "", self._quote(cause), "", *self._advice(cause.slug)]
        if cause.text == TRACEBACK:
            sentence = "This log breaks off in a traceback, before the line that says what failed:"
            return [sentence, "", f"  {self._line(cause)}", self._quote(cause), *self._advice(SAYS_NOTHING)]
        if cause.weight is Trouble.ENDED:
            sentence = self._shown(ended_first(cause.text))
            return [sentence, "", f"  {self._line(cause)}", self._quote(cause), *self._advice(SAYS_NOTHING)]
        return [f"No entry has the first failure: {self._place(cause)}", "", self._quote(cause)]

    def _of_dumps(self) -> list[str]:
        sentences = [self._shown(text) for hang in self.hangs for text in hang.sentences(self.diagnosis.hosts)]
        if not sentences:
            count = f"{len(self.dumps)} dump{'' if len(self.dumps) == 1 else 's'}"
            sentences = [f"In {count}, no rank waits in a collective. gloo does not record send and recv."]
        return [*sentences, f"  Page: {PAGE_OF_HANGS}", ""]

    def _shown(self, text: str) -> str:
        return printable(self.mask(text))

    def _place(self, finding: Finding) -> str:
        host = self._host(finding)
        rank = "" if finding.rank is None else f"rank {finding.rank}{f' on {host}' if host else ''}, "
        return self._shown(rank) + self._line(finding)

    def _line(self, finding: Finding) -> str:
        return self._shown(f"{finding.log}, line {finding.number}")

    def _host(self, finding: Finding) -> str | None:
        return None if finding.rank is None else self.diagnosis.hosts.get(finding.rank)

    def _quote(self, finding: Finding) -> str:
        return f"    {self._shown(finding.text)}"

    def _advice(self, slug: str) -> list[str]:
        return [f"  Fix:  {load_entries()[slug].fix}", f"  Page: {page_of(slug)}"]

    def json(self) -> str:
        """Return the report for programs."""
        diagnosis = self.diagnosis
        document = {
            "schema": SCHEMA,
            "status": self.status.name.lower(),
            "job": self.job,
            "state": self.state,
            "cause": self._told(diagnosis.cause) if diagnosis.cause else None,
            "consequences": [*map(self._told, diagnosis.consequences)],
            "warnings": [*map(self._told, diagnosis.warnings)],
            "to_search": [*map(self._told, diagnosis.to_search)],
            "hangs": [{**asdict(hang), "group": self.mask(hang.group)} for hang in self.hangs],
            "dumps": [self.mask(name) for name in self.dumps],
            "logs": [{"name": self.mask(name), "bytes": size} for name, size in self.logs],
        }
        return json.dumps(document, indent=2) + "\n"

    def _told(self, finding: Finding) -> dict[str, Any]:
        host = self._host(finding)
        silent = finding.weight is Trouble.ENDED or finding.text == TRACEBACK
        advice = finding.slug or (SAYS_NOTHING if silent else "")
        return {
            "entry": finding.slug or None,
            "line": self.mask(finding.text),
            "log": self.mask(finding.log),
            "number": finding.number,
            "rank": finding.rank,
            "host": self.mask(host) if host else None,
            "fix": load_entries()[advice].fix if advice else None,
            "page": page_of(advice) if advice else None,
        }
