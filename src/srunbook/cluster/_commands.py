"""Using a cluster as an ordinary user does: commands on its login node, jobs, a shell."""

from __future__ import annotations

import codecs
import re
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srunbook.cluster._configuration import USER, USER_IDS
from srunbook.cluster._entering import devices, entering
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._staging import stage
from srunbook.cluster._state import State
from srunbook.cluster._terminal import is_interactive, run_apart
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

PIECE = 2**24
"""Bytes of a job's output that are read at once."""

READ = """\
[ -f "$1" ] || exit 0
exec dd if="$1" iflag=skip_bytes,count_bytes,nonblock skip="$2" count="$3" bs=64k status=none
"""
"""Prints a piece of a file; a job may have put a pipe or a device in its place, which would never end."""


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

    It gets a session of its own, and a terminal of its own in the place of this process's.

    Args:
        state: The cluster.
        command: What to run.
        user: As whom.
        machine: On which machine.

    Returns:
        Its exit status as a shell gives it: 128 and the signal where one ended it.

    Raises:
        SpecificationError: No such user or machine.
        ClusterError: The machine is dead.
    """
    typed = is_interactive()
    line = entering(state, machine, command, user=user, terminal=typed)
    return run_apart(line, devices(state, machine), USER_IDS[user], interactive=typed)


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

    Raises:
        SpecificationError: No such user or machine.
        ClusterError: The machine is dead.
    """
    return subprocess.run(
        entering(state, machine, command, user=user, folder=folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
    )


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
    job = re.search(r"^(\d+)(;\S*)?\n\Z", result.stdout, re.MULTILINE)  # the user's profile may print lines before it
    if not job:
        raise ClusterError(f"sbatch printed {result.stdout!r} and not the number of the job")
    return await_job(state, job[1], user=user, follow=follow, timeout=timeout)


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
    output = bytearray()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    said: dict[str, str] = {}
    ended = False
    while not ended:
        shown = _printed(state, ["scontrol", "--oneliner", "show", "job", job], user).decode(errors="replace")
        said = dict(re.findall(r"(\w+)=(\S*)", shown)) or said
        ended = said.get("JobState", "") in ENDED
        new = _read(state, said.get("StdOut", ""), user, len(output))
        output += new
        ended = ended and len(new) < PIECE
        if text := decoder.decode(new, final=ended):
            follow(text)
        if not ended and not state.alive:
            raise ClusterError(f"cluster {state.specification.name!r} went down while job {job} ran")
        if not ended and deadline is not None and time.monotonic() > deadline:
            capture(state, ["scancel", job], user=user)
            said_so_far = output.decode(errors="replace")
            raise ClusterError(
                f"job {job} had not ended after {timeout:.0f} s and was cancelled; it said:\n{said_so_far}"
            )
        if not ended:
            time.sleep(0.3)
    rows = account(state, job)
    code, _, number = rows[0]["ExitCode"].partition(":") if rows else ("1", "", "0")
    status = int(code) or (128 + int(number) if int(number) else 0)
    if status == 0 and not (rows and rows[0]["State"] == "COMPLETED"):
        status = 1
    return FinishedJob(job, rows, output.decode(errors="replace"), status)


def _read(state: State, path: str, user: str, offset: int) -> bytes:
    """Read a piece of a file beyond an offset, as its user and on the cluster, so that no link leads elsewhere."""
    if not path or path == "/dev/null":
        return b""
    return _printed(state, ["sh", "-c", READ, "sh", path, str(offset), str(PIECE)], user)


def _printed(state: State, command: Sequence[str], user: str) -> bytes:
    """Run a command as a user without the user's profile, which may print, too; return what it printed."""
    line = entering(state, "login", command, user=user, login=False)
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout


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
