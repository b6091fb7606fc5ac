"""Tell what a verification found: as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook.verify._causes import Cause

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
    """

    job: str | None
    results: str | None
    checks: tuple[Check, ...]
    final: Mapping[str, float] = field(default_factory=dict)
    ended: bool = True

    @property
    def cause(self) -> Cause:
        """Return the cause of the first check that failed; it explains those below it."""
        found = next((check.cause for check in self.checks if check.cause is not None), None)
        if found is not None:
            return found
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
        width = max((len(check.name) for check in self.checks), default=0)
        lines = [self._title(), ""]
        for check in self.checks:
            lines.append(f"{check.outcome.value:10}  {check.name:{width}}  {_printable(check.evidence)}")
            if check.next_step:
                lines.append(f"{'':10}  {'':{width}}  next: {_printable(check.next_step)}")
        return "\n".join([*lines, "", self.conclusion, ""])

    def markdown(self) -> str:
        """Return the text of EXECUTION_SUMMARY.md."""
        lines = [f"# {self._title()}", "", f"{self.conclusion[:1].upper()}{self.conclusion[1:]}.", ""]
        lines += ["| check | outcome | what was found |", "|---|---|---|"]
        for check in self.checks:
            lines.append(f"| {check.name} | {check.outcome.value} | {_cell(check.evidence)} |")
        steps = [check for check in self.checks if check.next_step]
        if steps:
            lines += ["", "## What to do next", ""]
            lines += [f"- {check.name}: {_printable(check.next_step)}" for check in steps]
        if self.final:
            lines += ["", "## The last epoch", "", "| metric | value |", "|---|---|"]
            lines += [f"| {name} | {value:g} |" for name, value in self.final.items()]
        return "\n".join([*lines, "", f"Written by `srunbook verify {self.job or self.results}`.", ""])

    def json(self) -> str:
        """Return the same for programs."""
        checks: list[dict[str, Any]] = [
            {
                "name": check.name,
                "outcome": check.outcome.name.lower(),
                "evidence": check.evidence,
                "cause": None if check.cause is None else check.cause.name,
                "next": check.next_step or None,
            }
            for check in self.checks
        ]
        report = {
            "job": self.job,
            "results": self.results,
            "status": int(self.cause),
            "cause": self.cause.name,
            "meaning": self.cause.meaning,
            "checks": checks,
            "final": dict(self.final),
        }
        return json.dumps(report, indent=2) + "\n"

    def write_summary(self, folder: Path) -> bool:
        """Write EXECUTION_SUMMARY.md whole into the folder of results; return whether it changed."""
        return write_whole(folder / SUMMARY, self.markdown())

    def _title(self) -> str:
        return ", ".join(filter(None, [f"Job {self.job}" if self.job else "", self.results or ""]))


def _printable(text: str) -> str:
    """Escape what could move a terminal's cursor: much of a text comes out of files."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)


def _cell(text: str) -> str:
    return _printable(text).replace("|", "\\|")
