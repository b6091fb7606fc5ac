"""Waiting for the end of a job: of all elements of an array, of all components of a heterogeneous job."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from srunbook.cluster._asking import asking
from srunbook.cluster._configuration import USER
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._following import Output
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._state import State
from srunbook.slurm import SacctRow, ask_accounting, is_over, queue_states

FIELDS = ("JobID", "JobName", "Partition", "State", "ExitCode", "Elapsed", "NodeList")
"""Columns of sacct that a job's row shows."""

PATIENCE = 300.0
"""Seconds to wait for final rows: many clusters may share a machine."""


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended.

    Args:
        identity: Its number.
        rows: Rows of sacct for the job and its steps: for all elements of an array, for all components.
        output: What it wrote to its output file. Of an array, what each element wrote, each under a line with the
            name of its file.
        exit_status: Exit status of the job as a shell would give it; 1 where it failed without one. Of an array or a
            heterogeneous job, that of the first part that failed.
    """

    identity: str
    rows: list[dict[str, str]]
    output: str
    exit_status: int

    @property
    def state(self) -> str:
        """Return the state of the job in accounting, such as COMPLETED; of several parts, of the first that failed."""
        states = [row["State"].split()[0] for row in self.rows if "." not in row["JobID"]]
        return next((state for state in states if state != "COMPLETED"), *states[:1] or ["UNKNOWN"])


def await_job(
    state: State,
    job: str,
    *,
    user: str = USER,
    follow: Say = say_nothing,
    timeout: float | None = None,
) -> FinishedJob:
    """Wait for the end of a job, following its output.

    Args:
        state: The cluster.
        job: Its number, or that of an element of an array.
        user: Whose job it is.
        follow: Is given the job's output as it grows; of an array, that of one element after the other.
        timeout: Seconds after which the job is cancelled.

    Raises:
        ClusterError: It did not end in time, and was cancelled.
    """
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        follow(text)

    seen, over = watch(state, job, Output(state, job, user, tell), timeout)
    if not over:
        asking(state)(["scancel", job])
        said = "".join(told)
        raise ClusterError(f"job {job} had not ended after {timeout:.0f} s and was cancelled; it said:\n{said}")
    rows = _account(state, job, seen)
    statuses = [_status(row) for row in rows if not row.step]
    status = next(filter(None, statuses), 0 if statuses else 1)
    return FinishedJob(job, _shown(rows), "".join(told), status)


def watch(state: State, job: str, output: Output, timeout: float | None = None) -> tuple[set[str], bool]:
    """Read the output of a job until its end.

    Args:
        state: The cluster.
        job: Its number.
        output: What reads it.
        timeout: Seconds after which to give up.

    Returns:
        The numbers of its parts, and whether it has ended.

    Raises:
        ClusterError: The cluster went down meanwhile.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    seen: set[str] = set()
    while True:
        parts = queue_states(job, asking(state))
        seen.update(part for part in parts or () if re.fullmatch(r"\d+(?:[_+]\d+)?", part))
        over = parts is not None and all(map(is_over, parts.values()))
        if output.read(parts or {}, last=over) and over:
            return seen, True
        if not state.alive:
            raise ClusterError(f"cluster {state.specification.name!r} went down while job {job} ran")
        if not over and deadline is not None and time.monotonic() > deadline:
            return seen, False
        time.sleep(0.3)


def account(state: State, job: str) -> list[dict[str, str]]:
    """Return the rows of sacct for a job and its steps.

    Accounting lags the end of a job, so this waits until the rows of one that has ended are final.

    Args:
        state: The cluster.
        job: Its number.

    Raises:
        ClusterError: sacct printed something else.
    """
    return _shown(_account(state, job))


def _account(state: State, job: str, parts: Collection[str] = ()) -> list[SacctRow]:
    """Ask until the rows are final and name all parts of the job that were seen; one may come after the others."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = ask_accounting(job, asking(state), more=["JobName"], patience=PATIENCE)
        if found.problem:
            raise ClusterError(found.problem)
        missing = set(parts) - {row.columns["JobID"] for row in found.last}
        if not missing:
            return found.last
        if time.monotonic() > deadline:
            raise ClusterError(f"accounting had no rows of {', '.join(sorted(missing))} after {PATIENCE:.0f} s")
        time.sleep(0.3)


def _shown(rows: Sequence[SacctRow]) -> list[dict[str, str]]:
    return [{name: row.columns[name] for name in FIELDS} for row in rows]


def _status(row: SacctRow) -> int:
    status = row.exit_code or (128 + row.signal if row.signal else 0)
    return status or int(row.state != "COMPLETED")
