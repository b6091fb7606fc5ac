"""Ask sacct: the one place of this room that starts a program."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass

from srunbook.slurm import SacctRow, SlurmParseError, parse_sacct, sacct_command, split_attempts

LAG = 10.0
"""Seconds by which accounting may lag the end of a job before it is believed."""


@dataclass(frozen=True)
class Accounting:
    """What accounting says about a job.

    Args:
        rows: Rows of the job and its steps, of all its attempts.
        source: Who said so: `sacct`, or the name of a file.
        problem: Why nobody could be asked; empty where somebody was.
        text: What was said, with its header line.
        queued: State in squeue of a job that accounting does not know yet; empty for others.
    """

    rows: tuple[SacctRow, ...] = ()
    source: str = "sacct"
    problem: str = ""
    text: str = ""
    queued: str = ""

    @property
    def attempts(self) -> list[list[SacctRow]]:
        """Return the rows of each attempt, the last one last. A job that was requeued has several."""
        return split_attempts(self.rows)

    @property
    def last(self) -> list[SacctRow]:
        """Return the rows of the last attempt, or none without one."""
        return self.attempts[-1] if self.rows else []

    @property
    def final(self) -> bool:
        """Tell whether the last attempt and all its steps have ended."""
        return bool(self.rows) and all(row.ended for row in self.last)

    @property
    def settled(self) -> bool:
        """Tell whether accounting names all nodes that it counts, as it does once it has heard of the job's start."""
        if not self.rows or not self.last[0].node_list:
            return True
        try:
            return self.last[0].nodes in (None, len(self.last[0].hosts))
        except SlurmParseError:
            return True  # later it will not read better


def ask_sacct(job: str) -> Accounting:
    """Ask sacct about a job, with all attempts of one that was requeued.

    Accounting lags the end of a job: this asks again, for up to 10 seconds, while a job that has left the queue has
    not ended in accounting, or while accounting has not heard of all its nodes.

    Args:
        job: Number of the job.

    Returns:
        What accounting says; where nobody could be asked, `problem` says why.
    """
    deadline = time.monotonic() + LAG
    while True:
        found = _ask_once(job)
        if found.problem or (found.final and found.settled):
            return found
        queued = "" if found.final else _queued(job)
        if queued or not found.rows or time.monotonic() > deadline:
            return found if found.rows else Accounting(text=found.text, queued=queued)
        time.sleep(0.5)


def _ask_once(job: str) -> Accounting:
    try:
        done = _run(sacct_command(job, duplicates=True))
    except (OSError, subprocess.TimeoutExpired) as error:
        missing = isinstance(error, FileNotFoundError)
        return Accounting(problem="this machine has no sacct" if missing else f"sacct: {error}")
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"sacct ended with status {done.returncode}"]
        return Accounting(problem=words[-1])
    try:
        return Accounting(tuple(parse_sacct(done.stdout)), text=done.stdout)
    except SlurmParseError as error:
        return Accounting(problem=str(error))


def _queued(job: str) -> str:
    """Return the state of a job in squeue; empty once it has left the queue, or when squeue cannot be asked."""
    try:
        done = _run(["squeue", "--noheader", f"--jobs={job}", "--format=%T"])
    except (OSError, subprocess.TimeoutExpired):
        return ""
    state = done.stdout.split("\n")[0].strip() if done.returncode == 0 else ""
    return "" if state == "COMPLETING" else state


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
