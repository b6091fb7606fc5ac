"""Tell what a verification found: as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook._text import printable
from srunbook.verify._causes import NOT_OVER, Cause

SUMMARY = "EXECUTION_SUMMARY.md"


class Outcome(Enum):
    """What came of a check. What could not be checked has not passed."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_PROVEN = "not proven"


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: What was looked at.
        outcome: What came of it.
        evidence: What was found, and where it was not that, what was expected.
        cause: Why it failed; None where it did not.
        next_step: What to do now, where it did not pass.
    """

    name: str
    outcome: Outcome
    evidence: str
    cause: Cause | None = None
    next_step: str = ""


def passed(name: str, evidence: str) -> Check:
    """Make a check that passed."""
    return Check(name, Outcome.PASSED, evidence)


def failed(name: str, cause: Cause, evidence: str, next_step: str) -> Check:
    """Make a check that failed."""
    return Check(name, Outcome.FAILED, evidence, cause, next_step)


def not_proven(name: str, evidence: str, next_step: str = "") -> Check:
    """Make a check that proved nothing either way."""
    return Check(name, Outcome.NOT_PROVEN, evidence, None, next_step)


@dataclass(frozen=True)
class Report:
    """What a verification found.

    Args:
        job: Number of the job, or None where nothing names it.
        results: Folder of results, or None where the job has none.
        checks: The checks, in the order in which they were made.
        final: Metrics of the last epoch, by column.
        ended: Whether the job has ended, as far as is known.
        parts: The report of each element of an array, each of which is a check of this one; nothing for other jobs.
    """

    job: str | None
    results: str | None
    checks: tuple[Check, ...]
    final: Mapping[str, float] = field(default_factory=dict)
    ended: bool = True
    parts: tuple[Report, ...] = ()

    @property
    def cause(self) -> Cause:
        """Return the cause of the first check that failed; it explains those below it.

        What has failed weighs more than what has not ended.
        """
        found = sorted((check.cause for check in self.checks if check.cause is not None), key=NOT_OVER.__contains__)
        if found:
            return found[0]
        proven = bool(self.checks) and all(check.outcome is Outcome.PASSED for check in self.checks)
        return Cause.VERIFIED if proven else Cause.NOT_PROVEN

    @property
    def conclusion(self) -> str:
        """Sum it up in one sentence."""
        counts = [
            f"{number} {outcome.value}"
            for outcome in Outcome
            if (number := sum(check.outcome is outcome for check in self.checks))
        ]
        return f"{', '.join(counts)}: {self.cause.meaning} (status {int(self.cause)})"

    def text(self) -> str:
        """Return a table for the terminal, with the next step under each check that did not pass."""
        names = [printable(check.name) for check in self.checks]
        width = max(map(len, names), default=0)
        lines = [self._title(), ""]
        for check, name in zip(self.checks, names, strict=True):
            lines.append(f"{check.outcome.value:10}  {name:{width}}  {printable(check.evidence)}")
            if check.next_step:
                lines.append(f"{'':10}  {'':{width}}  next: {printable(check.next_step)}")
        return "\n".join([*lines, "", self.conclusion, ""])

    def markdown(self) -> str:
        """Return the text of EXECUTION_SUMMARY.md."""
        lines = [f"# {self._title()}", "", f"{self.conclusion[:1].upper()}{self.conclusion[1:]}.", ""]
        lines += ["| check | outcome | what was found |", "|---|---|---|"]
        for check in self.checks:
            lines.append(f"| {_cell(check.name)} | {check.outcome.value} | {_cell(check.evidence)} |")
        steps = [check for check in self.checks if check.next_step]
        if steps:
            lines += ["", "## What to do next", ""]
            lines += [f"- {printable(check.name)}: {printable(check.next_step)}" for check in steps]
        if self.final:
            lines += ["", "## The last epoch", "", "| metric | value |", "|---|---|"]
            lines += [f"| {_cell(name)} | {value:g} |" for name, value in self.final.items()]
        command = printable(f"srunbook verify {self.job or self.results}")
        return "\n".join([*lines, "", f"Written by `{command}`.", ""])

    def json(self) -> str:
        """Return the same for programs: valid JSON in ASCII, whatever the texts hold."""
        return json.dumps(self._object(), indent=2) + "\n"

    def _object(self) -> dict[str, Any]:
        checks: list[dict[str, Any]] = [
            {
                "name": _encodable(check.name),
                "outcome": check.outcome.name.lower(),
                "evidence": _encodable(check.evidence),
                "cause": None if check.cause is None else check.cause.name,
                "next": _encodable(check.next_step) or None,
            }
            for check in self.checks
        ]
        return {
            "job": None if self.job is None else _encodable(self.job),
            "results": None if self.results is None else _encodable(self.results),
            "status": int(self.cause),
            "cause": self.cause.name,
            "meaning": self.cause.meaning,
            "checks": checks,
            "final": {_encodable(name): value for name, value in self.final.items()},
            "parts": [part._object() for part in self.parts],
        }

    def write_summary(self, folder: Path) -> bool:
        """Write EXECUTION_SUMMARY.md whole into the folder of results; return whether it changed."""
        return write_whole(folder / SUMMARY, self.markdown())

    def _title(self) -> str:
        return printable(", ".join(filter(None, [f"Job {self.job}" if self.job else "", self.results or ""])))


def as_check(report: Report) -> Check:
    """Return a report as one check: what decided about it, and what to do."""
    deciding = next((check for check in report.checks if check.cause is report.cause), None)
    deciding = deciding or next((check for check in report.checks if check.outcome is not Outcome.PASSED), None)
    if deciding is None or report.cause is Cause.VERIFIED:
        return passed(report.job or "", report.conclusion)
    outcome = Outcome.NOT_PROVEN if report.cause is Cause.NOT_PROVEN else Outcome.FAILED
    cause = None if report.cause is Cause.NOT_PROVEN else report.cause
    evidence = f"{deciding.name}: {deciding.evidence}"
    return Check(report.job or "", outcome, evidence, cause, deciding.next_step or f"srunbook verify {report.job}")


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")


def _encodable(text: str) -> str:
    """Escape bytes of a name that are not UTF-8, which Python keeps as halves of a character."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")
