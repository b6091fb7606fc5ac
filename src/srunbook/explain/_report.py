"""Tell a diagnosis: as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from srunbook._text import printable
from srunbook.explain._diagnosis import Diagnosis
from srunbook.explain._ended import ended_first
from srunbook.explain._entries import Entry, page_of
from srunbook.explain._hang import Hang
from srunbook.explain._scan import Finding
from srunbook.explain._trouble import Trouble

SCHEMA = 1
PAGE_OF_HANGS = "https://srunbook.readthedocs.io/en/latest/tools/hangs.html"
SAYS_NOTHING = "slurm-rank-says-nothing"
"""The entry that tells what to do where a rank ended and no line says why."""

MOST_SHOWN = 5
"""Consequences that the text names."""


class Status(IntEnum):
    """Exit statuses of `srunbook explain`."""

    meaning: str

    def __new__(cls, status: int, meaning: str) -> Status:
        """Give a status its meaning."""
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member

    EXPLAINED = 0, "an entry explains the first failure, or dumps show where ranks wait"
    BAD_INPUT = 2, "a log, a dump or a job could not be read; what the others say is printed"
    UNKNOWN = 3, "something failed that no entry knows, or a rank ended and no line says why"
    NOTHING_FAILED = 4, "no line speaks of a failure"


@dataclass(frozen=True)
class Report:
    """What is told of some logs.

    Args:
        diagnosis: Why the job failed.
        entries: The entries, by slug.
        logs: Names and sizes in bytes of the logs that were read.
        job: Number of the job, or None.
        state: Its state in words.
        mask: Masks what strangers must not read; by default nothing.
        hangs: Where ranks wait, by their dumps.
        dumps: Names of the dumps that were read.
    """

    diagnosis: Diagnosis
    entries: Mapping[str, Entry]
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
        lines = [f"Job {self.job}: {self.state}"] if self.job and self.state else []
        lines += self._hanging() if self.dumps else []
        cause = self.diagnosis.cause
        if cause is None:
            lines += [] if self.hangs else self._nothing()
        elif cause.slug:
            lines += [f"The first failure: {self._place(cause)}", "", self._quote(cause), ""]
            lines += self._advice(cause.slug)
        elif cause.weight is Trouble.ENDED:
            sentence = printable(self.mask(ended_first(cause.text)))
            lines += [sentence, "", f"  {self._line(cause)}", self._quote(cause), *self._advice(SAYS_NOTHING)]
        else:
            lines += [f"No entry knows the first failure: {self._place(cause)}", "", self._quote(cause)]
        if self.diagnosis.to_search and not (cause and cause.slug):
            others = [finding for finding in self.diagnosis.to_search if finding is not cause]
            lines += ["", "Worth searching for as well:", ""] if cause and others else []
            lines += [] if cause else ["", "Worth searching for:", ""]
            lines += [self._quote(finding) for finding in others]
        if self.diagnosis.consequences:
            lines += ["", "What followed:"]
            for finding in self.diagnosis.consequences[:MOST_SHOWN]:
                lines += ["", f"  {self._place(finding)}", self._quote(finding), *self._advice(finding.slug)]
        if self.diagnosis.warnings:
            lines += ["", "No failure, but worth reading:"]
            for finding in self.diagnosis.warnings:
                lines += ["", self._quote(finding), *self._advice(finding.slug)]
        return "\n".join(lines).rstrip("\n") + "\n"

    def _hanging(self) -> list[str]:
        """Return what the dumps say."""
        hosts = self.diagnosis.hosts
        said = [[self.mask(printable(text)) for text in hang.sentences(hosts)] for hang in self.hangs]
        if not said:
            return [
                f"In {len(self.dumps)} dump{'' if len(self.dumps) == 1 else 's'}, no rank waits in a collective. gloo "
                "does not record send and recv.",
                f"  Page: {PAGE_OF_HANGS}",
                "",
            ]
        return [*(line for texts in said for line in texts), f"  Page: {PAGE_OF_HANGS}", ""]

    def _nothing(self) -> list[str]:
        read = f"{len(self.logs)} log{'' if len(self.logs) == 1 else 's'}"
        return [
            f"No line of {read} speaks of a failure." if self.logs else "No log was read.",
            f"To check that the job did what it should: srunbook verify {self.job or 'JOBID'}",
        ]

    def _place(self, finding: Finding) -> str:
        host = self.diagnosis.hosts.get(finding.rank) if finding.rank is not None else None
        rank = "" if finding.rank is None else f"rank {finding.rank}{f' on {host}' if host else ''}, "
        return printable(self.mask(rank)) + self._line(finding)

    def _line(self, finding: Finding) -> str:
        return printable(self.mask(f"{finding.log}, line {finding.number}"))

    def _quote(self, finding: Finding) -> str:
        return f"    {printable(self.mask(finding.text))}"

    def _advice(self, slug: str) -> list[str]:
        return [f"  Fix:  {self.entries[slug].fix}", f"  Page: {page_of(slug)}"]

    def json(self) -> str:
        """Return the report for programs."""
        told = {
            "schema": SCHEMA,
            "status": self.status.name.lower(),
            "job": self.job,
            "state": self.state,
            "cause": self._told(self.diagnosis.cause),
            "consequences": [self._told(finding) for finding in self.diagnosis.consequences],
            "warnings": [self._told(finding) for finding in self.diagnosis.warnings],
            "to_search": [self._told(finding) for finding in self.diagnosis.to_search],
            "hangs": [{**hang.told(), "group": self.mask(hang.group)} for hang in self.hangs],
            "dumps": [self.mask(name) for name in self.dumps],
            "logs": [{"name": self.mask(name), "bytes": size} for name, size in self.logs],
        }
        return json.dumps(told, indent=2) + "\n"

    def _told(self, finding: Finding | None) -> dict[str, Any] | None:
        if finding is None:
            return None
        host = self.diagnosis.hosts.get(finding.rank) if finding.rank is not None else None
        advice = SAYS_NOTHING if finding.weight is Trouble.ENDED else finding.slug
        return {
            "entry": finding.slug or None,
            "line": self.mask(finding.text),
            "log": self.mask(finding.log),
            "number": finding.number,
            "rank": finding.rank,
            "host": self.mask(host) if host else None,
            "fix": self.entries[advice].fix if advice else None,
            "page": page_of(advice) if advice else None,
        }
