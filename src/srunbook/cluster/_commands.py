"""Using a cluster as an ordinary user does: commands on its login node, jobs, a shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from srunbook.cluster._configuration import USER
from srunbook.cluster._entering import ROOT, devices, entering
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._jobs import FinishedJob, await_job
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._staging import stage
from srunbook.cluster._state import State
from srunbook.cluster._terminal import is_interactive, run_apart


def execute(state: State, command: Sequence[str], *, user: str = USER, machine: str = "login") -> int:
    """Run a command on the cluster with this process's own input and output.

    It gets a session of its own, and a terminal of its own in the place of this process's.

    Args:
        state: The cluster.
        command: What to run.
        user: As whom: a user of the cluster, or `root`.
        machine: On which machine.

    Returns:
        Its exit status as a shell gives it, which is 128 and the signal where one ended it.

    Raises:
        SpecificationError: No such user or machine.
        ClusterError: The machine is dead.
    """
    typed = is_interactive()
    line = entering(state, machine, command, user=user, terminal=typed)
    owner = 0 if user == ROOT else state.specification.user_ids[user]
    return run_apart(line, devices(state, machine), owner, interactive=typed)


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
        user: As whom: a user of the cluster, or `root`; None is root without a login shell.
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
    """Submit a job script unmodified and wait for the end of the job, of all its elements and components.

    Args:
        state: The cluster.
        script: The script on the host.
        arguments: What is passed to the script.
        user: Who submits it.
        options: Options of sbatch.
        extra: Files and folders that it needs beside it, besides the Python and configuration files that lie there.
        folder: Where it is submitted, on the cluster; by default a new folder with the script and these files.
        follow: Is given the job's output as it grows.
        timeout: Seconds after which the job is cancelled.

    Returns:
        The job.

    Raises:
        SpecificationError: There is no such user, script, file or folder, or the user is root.
        ClusterError: sbatch refused it, or the job did not end in time.
    """
    if user == ROOT:
        users = ", ".join(state.specification.users)
        raise SpecificationError(f"user 'root': a job belongs to a user of the cluster, which has {users}")
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
