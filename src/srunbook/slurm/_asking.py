"""Ask sacct about a job, and wait until it knows the whole of one that has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from srunbook.slurm._accounting import (
    SACCT_FIELDS,
    SacctRow,
    is_over,
    leading_number,
    parse_sacct,
    sacct_command,
    split_attempts,
)
from srunbook.slurm._errors import SlurmParseError

LAG = 10.0
"""Seconds by which accounting may lag the end of a job before it is believed."""

PAUSE = 0.3
"""Seconds between two questions."""


class Done(Protocol):
    """What a command of Slurm came to: a `subprocess.CompletedProcess[str]`."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[[list[str]], Done]
"""Runs a command of Slurm, in this place or on another machine; raises OSError where it cannot."""


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
        """Tell whether accounting has heard of both the start and the end of all parts."""
        return all(row.settled for row in self.last)

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


def ask_accounting(job: str, run: Run, *, more: Sequence[str] = (), patience: float = LAG) -> Accounting:
    """Ask sacct about a job, with all attempts of one that was requeued.

    Accounting lags the end of a job. While a job that is not in the queue has no rows that are final, this asks
    again. It returns at once for a job that waits or runs, and for one that neither squeue nor sacct knows.

    Args:
        job: Number of the job, of an element of an array or of a component of a heterogeneous job. Of the latter,
            accounting tells all components.
        run: Runs a command of Slurm.
        more: Columns to ask for besides `SACCT_FIELDS`. Users may have written into them: the columns of `text` are
            then separated by something that nobody can guess.
        patience: Seconds to wait until the rows are final.

    Returns:
        What accounting says; where nobody could be asked, `problem` says why.
    """
    deadline = time.monotonic() + patience
    delimiter = f"|{os.urandom(16).hex()}|" if more else "|"
    whole = leading_number(job) if "+" in job else job
    while True:
        found = _ask_once(whole, run, [*SACCT_FIELDS, *more], delimiter)
        leader = next((leading_number(row.job_id) for row in found.rows if "+" in row.job_id), whole)
        if leader != whole:  # the number that Slurm gave one of the components
            whole = leader
            continue
        if found.problem or (found.final and found.settled):
            return found
        states = queue_states(whole, run) or {}
        queued = next((state for state in states.values() if not is_over(state) and state != "COMPLETING"), "")
        if (queued and not found.final) or not (found.rows or states) or time.monotonic() > deadline:
            return found if found.rows else Accounting(text=found.text, queued=queued)
        time.sleep(PAUSE)


def _ask_once(job: str, run: Run, columns: Sequence[str], delimiter: str) -> Accounting:
    try:
        done = run(sacct_command(job, columns, duplicates=True, delimiter=delimiter))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        return Accounting(problem="this machine has no sacct" if missing else f"sacct: {error}")
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"sacct ended with status {done.returncode}"]
        return Accounting(problem=words[-1])
    try:
        return Accounting(tuple(parse_sacct(done.stdout, delimiter)), text=done.stdout)
    except SlurmParseError as error:
        return Accounting(problem=str(error), text=done.stdout)


def queue_states(job: str, run: Run) -> dict[str, str] | None:
    """Return the state of each part of a job in squeue, which keeps those that have ended for some minutes.

    Args:
        job: Number of the job.
        run: Runs a command of Slurm.

    Returns:
        States by number, such as `56_3`; empty for a job that squeue does not know, None where squeue does not answer.
    """
    try:
        done = run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%i %T"])
    except OSError:
        return None
    if done.returncode != 0:
        return {} if "Invalid job id" in done.stderr else None
    pairs = (line.split() for line in done.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
