"""Decide which finding is the cause, and which ones follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from srunbook.explain._ended import ended_first
from srunbook.explain._entries import Entry
from srunbook.explain._scan import Finding, Scanned
from srunbook.explain._trouble import Trouble

NEAR = 300
"""Lines of a traceback around a line that an entry knows; what they say belongs to it."""

MOST_TO_SEARCH = 3


@dataclass(frozen=True)
class Diagnosis:
    """Why a job failed.

    Args:
        cause: The first failure, or None where no line speaks of one. One without a slug is known to no entry; one of
            weight `ENDED` says only which task ended first.
        consequences: What followed, the first line of each entry.
        warnings: Lines of entries that good runs print, too.
        to_search: The lines most worth searching for, where no entry knows the cause.
        hosts: Nodes by rank, as far as the logs name them.
    """

    cause: Finding | None
    consequences: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    to_search: tuple[Finding, ...] = ()
    hosts: Mapping[int, str] = field(default_factory=dict)

    @property
    def slugs(self) -> set[str]:
        """Return the entries whose failures the logs show; those of warnings are not among them."""
        return {finding.slug for finding in (self.cause, *self.consequences) if finding and finding.slug}


def diagnose(logs: Iterable[Scanned], entries: Mapping[str, Entry], *, completed: bool = False) -> Diagnosis:
    """Find the cause among the findings of all logs.

    What an entry knows as a cause comes before what it knows as a consequence, whatever the times say: a rank that
    waits can give up before the rank it waits for has printed why it came late. Among the rest the first one counts.

    Args:
        logs: What each log holds.
        entries: The entries, by slug.
        completed: Whether accounting says that the job and all its steps ended well. A line that no entry knows is
            then no failure.
    """
    logs = list(logs)
    hosts = {rank: host for log in logs for rank, host in log.hosts.items()}
    found = [finding for log in logs for finding in log.findings]
    known = _without_explained([finding for finding in found if finding.slug], entries)
    failures = [finding for finding in known if entries[finding.slug].role != "warning"]
    warnings = _first_of_each(finding for finding in known if entries[finding.slug].role == "warning")
    unknown = [finding for finding in found if not finding.slug and not _belongs(finding, failures, entries)]
    loud = [] if completed else [finding for finding in unknown if finding.weight >= Trouble.HARD]
    if not failures and not loud and not completed:
        loud = [finding for finding in unknown if finding.weight is Trouble.ERROR] or _ended(logs)
    first = _first(loud, failures, entries)
    followed = tuple(finding for finding in _first_of_each(failures) if not first or finding.slug != first.slug)
    spoken = [finding for finding in unknown if finding.weight is not Trouble.ENDED]
    own = [finding for finding in spoken if finding.weight >= Trouble.HARD or not _near(finding, failures)]
    to_search = _worth_searching(own, first) if first is None or not first.slug else ()
    return Diagnosis(first, followed, tuple(warnings), to_search, hosts)


def _ended(logs: Iterable[Scanned]) -> list[Finding]:
    """Return, of each log, the task that ended first, unless its step was ended as a whole before."""
    ended = ([finding for finding in log.findings if finding.weight is Trouble.ENDED] for log in logs)
    return [found[0] for found in ended if found and not found[0].slug and ended_first(found[0].text)]


def _without_explained(known: Sequence[Finding], entries: Mapping[str, Entry]) -> list[Finding]:
    """Drop the messages that another entry explains, and the entries whose consequence did not come."""
    slugs = {finding.slug for finding in known}
    came = {slug for slug in slugs if not entries[slug].explains or slugs & {*entries[slug].explains}}
    explained = {other for slug in came for other in entries[slug].explains}
    return [finding for finding in known if finding.slug in came - explained]


def _belongs(finding: Finding, failures: Iterable[Finding], entries: Mapping[str, Entry]) -> bool:
    """Tell whether a line is part of what a rank reports of a failure that an entry knows.

    What a rank prints before a consequence may be the cause of it.
    """
    for failure in failures:
        if failure.log == finding.log and failure.rank == finding.rank:
            after = finding.number - failure.number
            if 0 <= after < NEAR or (-NEAR < after < 0 and entries[failure.slug].role == "cause"):
                return True
    return False


def _near(finding: Finding, failures: Iterable[Finding]) -> bool:
    """Tell whether a line stands beside one that an entry knows."""
    return any(failure.log == finding.log and abs(failure.number - finding.number) < NEAR for failure in failures)


def _first(unknown: Iterable[Finding], failures: Iterable[Finding], entries: Mapping[str, Entry]) -> Finding | None:
    ranked = [(0, finding) for finding in unknown]
    ranked += [(int(entries[finding.slug].role == "consequence"), finding) for finding in failures]
    if not ranked:
        return None
    lowest = min(rank for rank, _ in ranked)
    candidates = [finding for rank, finding in ranked if rank == lowest]
    if all(finding.time is not None for finding in candidates):
        return min(candidates, key=lambda finding: finding.time or 0.0)
    # Without times, the order is known within a log only; a line that an entry knows tells more than one it does not.
    return min(candidates, key=lambda finding: (not finding.slug, -finding.weight))


def _first_of_each(findings: Iterable[Finding]) -> list[Finding]:
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.slug, finding)
    return list(first.values())


def _worth_searching(unknown: Iterable[Finding], first: Finding | None) -> tuple[Finding, ...]:
    """Choose the loudest lines, the cause first, each text once."""
    ordered = sorted(unknown, key=lambda finding: (finding is not first, -finding.weight))
    texts: dict[str, Finding] = {}
    for finding in ordered:
        texts.setdefault(finding.text, finding)
    return tuple(texts.values())[:MOST_TO_SEARCH]
