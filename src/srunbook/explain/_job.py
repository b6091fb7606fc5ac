"""Find the logs of a job, and put what Slurm says of it into lines of one more log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from srunbook.slurm import (
    Accounting,
    Done,
    OutputFiles,
    SacctRow,
    SlurmParseError,
    ask_outputs,
    ask_sacct,
    ask_step_outputs,
    expand_hostlist,
    queue_states,
    run_here,
)

GONE = "no such file"

REASONS = "--format=%T %R"
"""State and reason of each part of a job, as a user's squeue shows them: `PENDING (Resources)`."""


@dataclass
class JobLogs:
    """What Slurm knows of a job.

    Args:
        job: Its number.
        paths: Its logs.
        lines: What squeue and sacct say, one line for each part and step.
        problems: What could not be asked or found.
        completed: Whether the job and all its steps ended with COMPLETED 0:0.
        state: The job's state in words; empty where Slurm does not know it.
        hosts: Its nodes.
    """

    job: str
    paths: list[Path] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    completed: bool = False
    state: str = ""
    hosts: list[str] = field(default_factory=list)


def find_job(
    job: str,
    *,
    ask: Callable[[str], Accounting] = ask_sacct,
    outputs: Callable[[str], Mapping[str, OutputFiles]] = ask_outputs,
    run: Callable[[list[str]], Done] = run_here,
) -> JobLogs:
    """Ask Slurm about a job, and find its logs.

    Args:
        job: Number of a job, of an element of an array or of a component.
        ask: Returns the accounting of a job.
        outputs: Returns the files that it writes to, by number.
        run: Runs a command of Slurm.
    """
    found = JobLogs(job)
    accounting = ask(job).of(job)
    rows = accounting.last
    found.lines = [f"sacct: {row.identity} {row.state} {row.exit_code}:{row.signal}" for row in rows]
    found.completed = bool(rows) and all((row.state, row.exit_code, row.signal) == ("COMPLETED", 0, 0) for row in rows)
    if rows:
        found.state = _state(rows)
        found.hosts = _hosts(rows[0].node_list)
    if not accounting.final:
        waiting = _waiting(job, run)
        found.lines += [f"squeue: {line}" for line in waiting]
        found.state = found.state or (waiting[0] if waiting else "")
    if accounting.problem:
        found.problems.append(f"accounting says nothing of job {job}: {accounting.problem}")
        found.state = found.state or _queued(job, run)
    elif not found.state:
        found.problems.append(
            f"Slurm knows no job {job}: look for its number with sacct --starttime=now-7days, or give its logs"
        )
    named = {path: _why_not(path) for files in outputs(job).values() for path in (files.output, files.errors)}
    named |= {path: "" for path in ask_step_outputs(job, run) if not _why_not(path)}
    found.paths = sorted(Path(path) for path, problem in named.items() if not problem)
    found.problems += [
        f"{path}: {problem}: whoever submitted job {job} can run srunbook explain --redact {job}"
        for path, problem in sorted(named.items())
        if problem and problem != GONE
    ]
    gone = sorted(path for path, problem in named.items() if problem == GONE)
    if found.state and not found.paths and len(gone) == len(named) and not found.state.startswith("PENDING"):
        places = f"; Slurm names {', '.join(gone)}" if gone else ""
        found.problems.append(f"no log of job {job} was found{places}: give its logs")
    return found


def _state(rows: Sequence[SacctRow]) -> str:
    """Return the state of a job; of several elements or components, that of the first that did not end well."""
    parts = [row for row in rows if not row.step]
    bad = [row for row in parts if (row.state, row.exit_code) != ("COMPLETED", 0)]
    worst = next((row for row in bad if row.ended), (bad or rows)[0])
    whose = f"{worst.identity} " if len(parts) > 1 else ""
    return f"{whose}{worst.state} {worst.exit_code}:{worst.signal}"


def _queued(job: str, run: Callable[[list[str]], Done]) -> str:
    """Return the state of a job in squeue, which remembers it for some minutes."""
    states = queue_states(job, run) or {}
    return next((state for state in states.values() if state != "COMPLETED"), next(iter(states.values()), ""))


def _waiting(job: str, run: Callable[[list[str]], Done]) -> list[str]:
    try:
        done = run(["squeue", "--noheader", f"--jobs={job}", REASONS])
    except OSError:
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _hosts(node_list: str) -> list[str]:
    try:
        return expand_hostlist(node_list)
    except SlurmParseError:
        return []


def _why_not(path: str) -> str:
    """Return why a log cannot be read, or an empty text."""
    try:
        return "" if S_ISREG(Path(path).stat().st_mode) else GONE
    except PermissionError:
        return "Permission denied"
    except OSError:
        return GONE
