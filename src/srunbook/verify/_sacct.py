"""Ask sacct: the one place of this room that starts a program."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, replace
from functools import cached_property

from srunbook.slurm import SacctRow, SlurmParseError, leading_number, parse_sacct, sacct_command, split_attempts

LAG = 10.0
"""Seconds by which accounting may lag the end of a job before it is believed."""


@dataclass(frozen=True)
class Accounting:
    """What accounting says about a job.

    Args:
        rows: Rows of the job and its steps, of all its attempts, elements and components.
        source: Who said so: `sacct`, or the name of a file.
        problem: Why nobody could be asked, or cannot be understood; empty where somebody was.
        text: What was said, with its header line; beside a problem, what cannot be read.
        queued: State in squeue of a job that accounting does not know yet; empty for others.
        foreign: Numbers of other jobs whose rows were among those of this one.
    """

    rows: tuple[SacctRow, ...] = ()
    source: str = "sacct"
    problem: str = ""
    text: str = ""
    queued: str = ""
    foreign: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> dict[str, Accounting]:
        """Return what it says of the job, or of each element of an array or component of a heterogeneous job."""
        places: dict[str, list[int]] = {}
        for place, row in enumerate(self.rows):
            places.setdefault(row.job_id, []).append(place)
        lines = self.text.split("\n")
        return {job_id: self._at(own, lines) for job_id, own in places.items()}

    def _at(self, places: list[int], lines: list[str]) -> Accounting:
        """Return the accounting of some rows, which follow a header line in the text."""
        text = "\n".join([lines[0], *(lines[place + 1] for place in places if place + 1 < len(lines)), ""])
        return replace(self, rows=tuple(self.rows[place] for place in places), text=text)

    @property
    def attempts(self) -> list[list[SacctRow]]:
        """Return the rows of each attempt, the last one last. A job that was requeued has several."""
        return split_attempts(self.rows)

    @cached_property
    def last(self) -> list[SacctRow]:
        """Return the rows of the last attempt of each part, or none without one."""
        return [row for part in self.parts.values() for row in part.attempts[-1]]

    @property
    def final(self) -> bool:
        """Tell whether the last attempt and all its steps have ended."""
        return bool(self.rows) and all(row.ended for row in self.last)

    @property
    def settled(self) -> bool:
        """Tell whether accounting names all nodes that it counts, as it does once it has heard of the job's start."""
        try:
            jobs = [row for row in self.last if not row.step and row.node_list]
            return all(row.nodes in (None, len(row.hosts)) for row in jobs)
        except SlurmParseError:
            return True  # later it will not read better

    def chosen(self, job: str) -> list[str]:
        """Name the parts that a number means: one of them, all of a job, or the one that Slurm gave that number."""
        if job in self.parts:
            return [job]
        all_parts = [part for part in self.parts if leading_number(part) == job]
        return all_parts or [part for part, rows in self.parts.items() if rows.rows[0].raw_id == job]

    def of(self, job: str) -> Accounting:
        """Return what it says about one job: its rows, and the numbers of any other jobs in `foreign`.

        The components of a heterogeneous job stay together, since one step may run on several.
        """
        chosen = self.chosen(job)
        leaders = {leading_number(part) for part in chosen if "+" in part}
        own = {part for part in self.parts if part in chosen or ("+" in part and leading_number(part) in leaders)}
        places = [place for place, row in enumerate(self.rows) if row.job_id in own]
        foreign = tuple(part for part in self.parts if part not in own)
        return replace(self._at(places, self.text.split("\n")), foreign=foreign) if foreign else self


def ask_sacct(job: str) -> Accounting:
    """Ask sacct about a job, with all attempts of one that was requeued.

    Accounting lags the end of a job: this asks again, for up to 10 seconds, while a job that has left the queue has
    not ended in accounting, or while accounting has not heard of all its nodes.

    Args:
        job: Number of the job, of an element of an array or of a component of a heterogeneous job. Of the latter,
            accounting tells all components.

    Returns:
        What accounting says; where nobody could be asked, `problem` says why.
    """
    clusters = os.environ.get("SLURM_CLUSTERS", "")
    if "," in clusters or clusters == "all":
        return Accounting(problem=f"SLURM_CLUSTERS={clusters}: each of these may have a job {job}; name one cluster")
    deadline = time.monotonic() + LAG
    whole = leading_number(job) if "+" in job else job
    while True:
        found = _ask_once(whole)
        leader = next((leading_number(row.job_id) for row in found.rows if "+" in row.job_id), whole)
        if leader != whole:  # the number that Slurm gave one of the components
            whole = leader
            continue
        if found.problem or (found.final and found.settled):
            return found
        queued = "" if found.final else _queued(whole)
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
        return Accounting(problem=str(error), text=done.stdout)


def _queued(job: str) -> str:
    """Return the state of a job in squeue; empty once it has left the queue, or when squeue cannot be asked."""
    try:
        done = _run(["squeue", "--noheader", f"--jobs={job}", "--format=%T"])
    except (OSError, subprocess.TimeoutExpired):
        return ""
    states = done.stdout.split() if done.returncode == 0 else []
    return next((state for state in states if state != "COMPLETING"), "")


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
