"""The verdict on a job and the checks behind it, as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook._text import printable
from srunbook.slurm import Accounting

SACCT_SUMMARY = "sacct_summary.txt"
SUMMARY = "EXECUTION_SUMMARY.md"


class Verdict(Enum):
    """The verdict on a check, or on a job. Its `status` is the exit status of the command."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_PROVEN = "not proven"

    @property
    def status(self) -> int:
        """Return the exit status."""
        return {"passed": 0, "failed": 1, "not proven": 3}[self.value]


@dataclass(frozen=True)
class Check:
    """What was checked, the verdict, what was found, and what to do next, which is empty if the check passed."""

    name: str
    verdict: Verdict
    evidence: str
    hint: str = ""


def passed(name: str, evidence: str) -> Check:
    """Make a check that passed."""
    return Check(name, Verdict.PASSED, evidence)


def failed(name: str, evidence: str, hint: str) -> Check:
    """Make a check that failed."""
    return Check(name, Verdict.FAILED, evidence, hint)


def not_proven(name: str, evidence: str, hint: str) -> Check:
    """Make a check that nothing decides."""
    return Check(name, Verdict.NOT_PROVEN, evidence, hint)


@dataclass(frozen=True)
class Report:
    """All checks of a job.

    Args:
        job: Number of the job, or None if nothing names it.
        checks: The checks.
        results: Its folders of results.
        accounting: What Slurm says about it.
        parts: The report of each element of an array; `checks` then has one line for each.
    """

    job: str | None
    checks: Sequence[Check]
    results: Sequence[Path] = ()
    accounting: Accounting = field(default_factory=Accounting)
    parts: Sequence[Report] = ()

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of its checks."""
        verdicts = {check.verdict for check in self.checks}
        if Verdict.FAILED in verdicts:
            return Verdict.FAILED
        return Verdict.PASSED if verdicts == {Verdict.PASSED} else Verdict.NOT_PROVEN

    @property
    def conclusion(self) -> str:
        """Return the verdict in a sentence."""
        number = sum(check.verdict is self.verdict for check in self.checks)
        what = {
            Verdict.PASSED: "every check passed",
            Verdict.FAILED: f"{number} of {len(self.checks)} checks failed",
            Verdict.NOT_PROVEN: f"{number} of {len(self.checks)} checks could not be decided",
        }[self.verdict]
        return f"{self.verdict.value}: {what} (status {self.verdict.status})"

    def as_check(self) -> Check:
        """Return the first check that decides the verdict, named after the job."""
        job, deciding = self.job or "", next(check for check in self.checks if check.verdict is self.verdict)
        if self.verdict is Verdict.PASSED:
            return passed(job, self.conclusion)
        return Check(job, self.verdict, f"{deciding.name}: {deciding.evidence}", deciding.hint)

    def text(self) -> str:
        """Return a table for the terminal; the line below a check that did not pass says what to do."""
        width = max(len(check.name) for check in self.checks)
        lines = [self._title(), ""]
        for check in self.checks:
            verdict = "FAILED" if check.verdict is Verdict.FAILED else check.verdict.value
            lines.append(f"{verdict:10}  {check.name:{width}}  {printable(check.evidence)}")
            lines += [f"{'':10}  {'':{width}}  next: {printable(check.hint)}"] if check.hint else []
        return "\n".join([*lines, "", self.conclusion, ""])

    def markdown(self) -> str:
        """Return the text of EXECUTION_SUMMARY.md."""
        lines = [f"# {self._title()}", "", f"{self.conclusion.capitalize()}.", ""]
        lines += ["| check | verdict | what was found |", "|---|---|---|"]
        for check in self.checks:
            evidence = f"{check.evidence}; {check.hint}" if check.hint else check.evidence
            cells = [check.name, check.verdict.value, printable(evidence).replace("|", "\\|")]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, ""])

    def json(self) -> str:
        """Return the report for programs, as JSON in ASCII."""
        return json.dumps(self._object(), indent=2) + "\n"

    def _object(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "verdict": self.verdict.value,
            "status": self.verdict.status,
            "results": [str(folder) for folder in self.results],
            "checks": [{**vars(check), "verdict": check.verdict.value} for check in self.checks],
            "parts": [part._object() for part in self.parts],
        }

    def write(self) -> None:
        """Write EXECUTION_SUMMARY.md and sacct_summary.txt into the folders of results of a job that has ended.

        Raises:
            OSError: A folder cannot be written.
        """
        for part in self.parts:
            part.write()
        for folder in self.results if self.accounting.final else ():
            write_whole(folder / SUMMARY, self.markdown().encode("utf-8", errors="replace"))
            write_whole(folder / SACCT_SUMMARY, self.accounting.text)

    def _title(self) -> str:
        return printable(", ".join([*([f"Job {self.job}"] if self.job else []), *map(str, self.results)]))
