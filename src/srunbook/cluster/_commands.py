"""Using a cluster as an ordinary user does: commands on its login node, jobs, a shell."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srunbook.cluster._configuration import USER, USER_IDS
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._namespaces import entering
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._state import State
from srunbook.slurm import SlurmParseError, parse_sacct_columns, sacct_command

FIELDS = ("JobID", "JobName", "Partition", "State", "ExitCode", "Elapsed", "NodeList")
"""Columns of sacct that a job's row shows."""

ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
"""States of a job that has ended, unless it was requeued."""


@dataclass(frozen=True)
class FinishedJob:
    """A job that has ended.

    Args:
        identity: Its number.
        rows: Rows of sacct for the job and its steps.
        output: What it wrote to its output file.
        exit_status: Exit status of the job as a shell would give it; 1 where it failed without one.
    """

    identity: str
    rows: list[dict[str, str]]
    output: str
    exit_status: int

    @property
    def state(self) -> str:
        """Return the state of the job in accounting, such as COMPLETED."""
        return self.rows[0]["State"].split()[0] if self.rows else "UNKNOWN"


def execute(state: State, command: Sequence[str], *, user: str = USER, machine: str = "login") -> int:
    """Run a command on the cluster with this process's own input and output.

    Args:
        state: The cluster.
        command: What to run.
        user: As whom.
        machine: On which machine.

    Returns:
        Its exit status.

    Raises:
        SpecificationError: No such user or machine.
    """
    _check(state, user, machine)
    line = entering(state, machine, ["env", f"TERM={os.environ.get('TERM', 'dumb')}", *command], user=user)
    return subprocess.run(line, check=False).returncode


def capture(
    state: State,
    command: Sequence[str],
    *,
    user: str | None = USER,
    machine: str = "login",
    folder: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster and return what it said.

    Args:
        state: The cluster.
        command: What to run.
        user: As whom; None is root.
        machine: On which machine.
        folder: Where; the user's home by default.
        timeout: Seconds after which it is killed.
    """
    _check(state, user, machine)
    return subprocess.run(
        entering(state, machine, command, user=user, folder=folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
    )


def _check(state: State, user: str | None, machine: str) -> None:
    if user is not None and user not in USER_IDS:
        raise SpecificationError(f"user {user!r}: the cluster has {' and '.join(USER_IDS)}, as in --user {USER}")
    if machine not in state.machines:
        raise SpecificationError(f"node {machine!r}: the cluster has {', '.join(state.machines)}")


def stage(state: State, script: Path, *, user: str = USER, extra: Sequence[Path] = ()) -> str:
    """Copy a job script, byte for byte, and the Python files beside it into a new folder of a user's home.

    Args:
        state: The cluster.
        script: The script on the host.
        user: Whose home.
        extra: Further files that it needs beside it.

    Returns:
        The folder's path on the cluster.

    Raises:
        SpecificationError: There is no such script.
    """
    if not script.is_file():
        raise SpecificationError(f"no such script: {script}. Give a file, as in train.sbatch")
    _check(state, user, "login")
    home = state.folder / "home" / user
    names = itertools.chain([script.stem], (f"{script.stem}-{number}" for number in itertools.count(2)))
    folder = home / next(name for name in names if not (home / name).exists())
    folder.mkdir(mode=0o755)
    for path in [script, *sorted(script.resolve().parent.glob("*.py")), *extra]:
        shutil.copyfile(path, folder / path.name)
    for path in [folder, *folder.iterdir()]:
        os.chown(path, USER_IDS[user], USER_IDS[user])
    return f"/home/{user}/{folder.name}"


def submit(
    state: State,
    script: Path,
    arguments: Sequence[str] = (),
    *,
    user: str = USER,
    options: Sequence[str] = (),
    extra: Sequence[Path] = (),
    folder: str | None = None,
    follow: Say = say_nothing,
    timeout: float | None = None,
) -> FinishedJob:
    """Submit a job script unmodified and wait for the end of the job.

    Args:
        state: The cluster.
        script: The script on the host.
        arguments: What is passed to the script.
        user: Who submits it.
        options: Options of sbatch.
        extra: Files that it needs beside it, besides the Python files that lie there already.
        folder: Where it is submitted, on the cluster; by default a new folder with the script and these files.
        follow: Is given the job's output as it grows.
        timeout: Seconds after which the job is cancelled.

    Returns:
        The job.

    Raises:
        ClusterError: sbatch refused it, or the job did not end in time.
    """
    folder = folder or stage(state, script, user=user, extra=extra)
    command = ["sbatch", "--parsable", *options, script.name, *arguments]
    result = capture(state, command, user=user, folder=folder)
    if result.returncode != 0:
        raise ClusterError(f"sbatch refused {script.name}:\n{result.stderr.strip()}")
    if result.stderr.strip():
        follow(result.stderr)
    return await_job(state, result.stdout.strip().split(";")[0], user=user, follow=follow, timeout=timeout)


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
        job: Its number.
        user: Whose job it is.
        follow: Is given the job's output as it grows.
        timeout: Seconds after which the job is cancelled.

    Raises:
        ClusterError: It did not end in time, and was cancelled.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    output = ""
    said: dict[str, str] = {}
    ended = False
    while not ended:
        shown = capture(state, ["scontrol", "--oneliner", "show", "job", job], user=user)
        said = dict(re.findall(r"(\w+)=(\S*)", shown.stdout)) or said
        ended = said.get("JobState", "") in ENDED
        new = _read(state, said.get("StdOut", ""), user, len(output.encode()))
        output += new
        if new:
            follow(new)
        if not ended and not state.alive:
            raise ClusterError(f"cluster {state.specification.name!r} went down while job {job} ran")
        if not ended and deadline is not None and time.monotonic() > deadline:
            capture(state, ["scancel", job], user=user)
            raise ClusterError(f"job {job} had not ended after {timeout:.0f} s and was cancelled; it said:\n{output}")
        if not ended:
            time.sleep(0.3)
    rows = account(state, job)
    code, _, number = rows[0]["ExitCode"].partition(":") if rows else ("1", "", "0")
    status = int(code) or (128 + int(number) if int(number) else 0)
    if status == 0 and not (rows and rows[0]["State"] == "COMPLETED"):
        status = 1
    return FinishedJob(job, rows, output, status)


def _read(state: State, path: str, user: str, offset: int) -> str:
    """Read a file beyond an offset in bytes, as its user and on the cluster, so that no link leads elsewhere."""
    if not path or path == "/dev/null":
        return ""
    command = entering(state, "login", ["tail", "-c", f"+{offset + 1}", "--", path], user=user)
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return result.stdout.decode(errors="surrogateescape")


def account(state: State, job: str, *, timeout: float = 30.0) -> list[dict[str, str]]:
    """Return the rows of sacct for a job and its steps.

    Accounting lags the end of a job, so this waits for it.

    Args:
        state: The cluster.
        job: Its number.
        timeout: Seconds to wait.

    Raises:
        ClusterError: sacct printed something else.
    """
    deadline = time.monotonic() + timeout
    delimiter = f"|{uuid.uuid4().hex}|"  # nobody can guess it, so a job's name forges no row
    command = sacct_command(job, [*FIELDS, "End"], delimiter=delimiter)
    while True:
        try:
            rows = parse_sacct_columns(capture(state, command, user=None).stdout, delimiter)
        except SlurmParseError as error:
            raise ClusterError(f"sacct: {error}") from None
        if _is_whole(rows):
            return [{name: row[name] for name in FIELDS} for row in rows]
        if time.monotonic() > deadline:
            return [{name: row[name] for name in FIELDS} for row in rows]
        time.sleep(0.2)


def _is_whole(rows: list[dict[str, str]]) -> bool:
    """Tell whether accounting knows the end of a job and of all its steps, and has heard of its start.

    A busy controller may report the end first. Accounting then calls the job `allocation`, and corrects that later.
    """
    if not rows or rows[0]["State"].split()[0] not in ENDED or rows[0]["JobName"] == "allocation":
        return False
    return all(row["End"] not in ("", "Unknown") for row in rows)
