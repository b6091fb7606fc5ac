"""Diagnose a failed job: find the entry that explains its logs.

The entries come from the troubleshooting pages. `explain` reads logs and what Slurm says about a job; its report shows
the first failure with its fix and page, and what followed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srunbook._files import BLOCK, read_blocks
from srunbook.explain.entries import Entry, expression, load_entries, load_ordinary, page_of, plain, shown
from srunbook.explain.hangs import VERSION, Collective, Dump, DumpError, Hang, find_hangs, read_dump
from srunbook.explain.redact import Redactor
from srunbook.explain.report import Diagnosis, Report, Status, diagnose
from srunbook.explain.scan import Finding, Scanned, Scanner, Trouble, shape
from srunbook.slurm import (
    Run,
    SacctRow,
    ask_accounting,
    ask_outputs,
    is_job_id,
    queue_states,
    run_here,
)

__all__ = [
    "Collective",
    "Diagnosis",
    "Entry",
    "Explained",
    "Finding",
    "Hang",
    "Redactor",
    "Report",
    "Scanned",
    "Scanner",
    "Status",
    "Trouble",
    "diagnose",
    "explain",
    "expression",
    "load_entries",
    "load_ordinary",
    "page_of",
    "plain",
    "shape",
    "shown",
]


@dataclass(frozen=True)
class Explained:
    """A report, and what could not be read for it.

    Args:
        report: What the logs say.
        problems: A sentence for each log or job that could not be read completely.
    """

    report: Report
    problems: tuple[str, ...] = ()


@dataclass
class _Job:
    """What Slurm knows of a job: one of `lines` for each part and step, and a `state` in words, or none."""

    state: str
    hosts: list[str]
    lines: list[str]
    completed: bool
    paths: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def explain(targets: Sequence[str], *, redact: bool = False, run: Run = run_here) -> Explained:
    """Find out why a job failed.

    Args:
        targets: Paths of logs and flight recorder dumps, numbers of jobs, and `-` for standard input. If a file has a
            number as its name, the number means that file.
        redact: Whether to mask users, home directories, hosts, addresses, tokens and keys.
        run: A function that runs a Slurm command; by default, on this machine.
    """
    numbers = [target for target in targets if is_job_id(target) and not Path(target).exists()]
    jobs = [_find_job(number, run) for number in numbers]
    paths = [Path(target) for target in targets if target not in numbers and target != "-"]
    paths += [path for job in jobs for path in job.paths]
    dumps, logs, problems = _read_dumps(dict.fromkeys(paths))
    scanner = Scanner(load_entries(), load_ordinary())
    scans = {str(path): _scan_file(scanner, path) for path in logs}
    if "-" in targets:
        scans["-"] = scanner.scan("-", iter(lambda: sys.stdin.buffer.read(BLOCK), b""))
    if answers := "\n".join(line for job in jobs for line in job.lines):
        scans["Slurm"] = scanner.scan("Slurm", [answers.encode()])
    problems += [problem for job in jobs for problem in job.problems]
    problems += [f"{name}: {problem}" for name, scanned in scans.items() for problem in scanned.problems]
    report = Report(
        diagnose(scans.values(), completed=bool(jobs) and all(job.completed for job in jobs)),
        [(name, scanned.size) for name, scanned in scans.items() if scanned.size and name != "Slurm"],
        job=numbers[0] if numbers else None,
        state=jobs[0].state if jobs else "",
        mask=redactor(scans, [host for job in jobs for host in job.hosts]).mask if redact else str,
        hangs=find_hangs(dumps),
        dumps=[dump.name for dump in dumps.values()],
    )
    return Explained(report, tuple(problems))


def redactor(scans: Mapping[str, Scanned], hosts: Iterable[str] = ()) -> Redactor:
    """Return what masks the names in all findings of some logs, and those that Slurm and the rank lines tell."""
    masker = Redactor()
    for variable in ("USER", "LOGNAME", "SUDO_USER"):
        masker.learn(f"user={os.environ.get(variable, '')}")
    for host in hosts:
        masker.learn(f"host={host}")
    for name, scanned in scans.items():
        masker.learn(str(Path(name).absolute()))
        for host in scanned.hosts.values():
            masker.learn(f"host={host}")
        for finding in scanned.findings:
            masker.learn(finding.text)
    return masker


def _read_dumps(paths: Iterable[Path]) -> tuple[dict[int, Dump], list[Path], list[str]]:
    """Return the dumps among some files by rank, the other files, and what is wrong with dumps."""
    dumps: dict[int, Dump] = {}
    others: list[Path] = []
    problems: list[str] = []
    for path in paths:
        try:
            dump = read_dump(path)
        except DumpError as error:
            problems.append(f"{path}: {error}")
            continue
        except OSError:  # reading it as a log tells why
            dump = None
        if dump is None:
            others.append(path)
            continue
        if dump.version != VERSION:
            problems.append(
                f"{path}: a dump of version {dump.version}, expected {VERSION} of PyTorch 2.13: read as if it were one"
            )
        if dump.rank in dumps:
            problems.append(f"{path}: a second dump of rank {dump.rank}: only {dumps[dump.rank].name} was used")
        dumps.setdefault(dump.rank, dump)
    return dict(sorted(dumps.items())), others, problems


def _scan_file(scanner: Scanner, path: Path) -> Scanned:
    """Read one log; where it cannot be read, say why."""
    try:
        scanned = scanner.scan(str(path), read_blocks(path))
    except OSError as error:
        folder = not isinstance(error, PermissionError) and path.is_dir()
        more = f": give the logs in it, as in {path}/*.out" if folder else ""
        return Scanned(problems=[f"{error.strerror}{more}"])
    if not scanned.size and not scanned.problems:
        scanned.problems.append("the file is empty")
    return scanned


def _find_job(job: str, run: Run) -> _Job:
    """Ask Slurm about a job, an element of an array or a component, and find its logs."""
    accounting = ask_accounting(job, run).of(job)
    rows = accounting.last
    lines = [f"sacct: {row.identity} {row.ending}" for row in rows]
    completed = {row.ending for row in rows} == {"COMPLETED 0:0"}
    facts = _Job(_state(rows), rows[0].hosts if rows else [], lines, completed)
    if not accounting.final:
        waiting = _reasons(job, run)
        facts.lines += [f"squeue: {line}" for line in waiting]
        facts.state = facts.state or (waiting[0] if waiting else "")
    if accounting.problem:
        facts.problems.append(f"accounting says nothing of job {job}: {accounting.problem}")
        states = [*(queue_states(job, run) or {}).values()]
        facts.state = facts.state or next((state for state in states if state != "COMPLETED"), "".join(states[:1]))
    elif not facts.state:
        facts.problems.append(
            f"Slurm knows no job {job}: look for its number with sacct --starttime=now-7days, or give its logs"
        )
    named = sorted({Path(path) for files in ask_outputs(job, run).values() for path in (files.output, files.errors)})
    if not facts.state.startswith("PENDING"):
        facts.paths = [path for path in named if _size(path)] or named  # one of two may be empty
        if facts.state and not named:
            facts.problems.append(f"Slurm names no log of job {job}: give its logs")
    return facts


def _state(rows: Sequence[SacctRow]) -> str:
    """Return the state of a job; of several elements or components, that of the first that did not end well."""
    parts = [row for row in rows if not row.step]
    bad = [row for row in parts if (row.state, row.exit_code) != ("COMPLETED", 0)]
    worst = next(iter([*(row for row in bad if row.ended), *bad, *rows]), None)
    whose = f"{worst.identity} " if worst and len(parts) > 1 else ""
    return f"{whose}{worst.ending}" if worst else ""


def _reasons(job: str, run: Run) -> list[str]:
    """Return state and reason of each part of a job, as a user's squeue shows them: `PENDING (Resources)`."""
    try:
        done = run(["squeue", "--noheader", f"--jobs={job}", "--format=%T %R"])
    except OSError:
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
