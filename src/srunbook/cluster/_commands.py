"""Run commands on the machines of a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from srunbook.cluster._cgroups import limiting_groups
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._host import CLEAN_ENVIRONMENT
from srunbook.cluster._processes import ending_in_order, handling
from srunbook.cluster._sections import USER
from srunbook.cluster._state import State

JOIN = 'umask 022; while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
"""Joins the cgroups named before `--`, then becomes the command after it."""

ROOT = "root"
"""The administrator of a cluster, who has every right on its machines and no home below /home."""

AS_USER = 'cd -- "$1" && shift && exec "$@"'


def entering(
    state: State,
    machine: str,
    command: Sequence[str],
    *,
    user: str | None = None,
    folder: str | None = None,
    login: bool = True,
    session: bool = True,
) -> list[str]:
    """Return the command line that runs a command on a machine of the cluster, as `capture` does.

    The command inherits the three streams and TERM. It inherits no other variable: root looks for programs on PATH
    inside the machine, too, where the caller's PATH may name folders that a user can write to. With `session` it gets
    a session of its own, which has no terminal.
    """
    users = state.specification.users
    if user not in (None, ROOT, *users):
        raise SpecificationError(
            f"user {user!r}: the cluster has {', '.join(users)} and {ROOT}, as in --user {next(iter(users))}"
        )
    if machine not in state.machines:
        raise SpecificationError(f"node {machine!r}: the cluster has {', '.join(state.machines)}")
    clean = [f"{name}={value}" for name, value in CLEAN_ENVIRONMENT.items()]
    start = ["env", "-i", *clean, f"TERM={os.environ.get('TERM', 'dumb')}"]
    join = ["sh", "-c", JOIN, "sh", *(str(path / "cgroup.procs") for path in limiting_groups(state, machine)), "--"]
    enter = ["nsenter", f"--target={state.first_process(machine)}", "--mount", "--net", "--uts", "--ipc", "--pid", "--"]
    leave = ["setsid"] if session else []
    switch = []
    if user is not None:
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env", "--pdeathsig=TERM"]
        switch += ["--", "bash", "-lc" if login else "-c", AS_USER, "bash", folder or home_of(user)]
    return [*start, *join, *enter, *leave, *switch, *command]


def home_of(user: str) -> str:
    """Return the home of a user on the cluster."""
    return f"/{ROOT}" if user == ROOT else f"/home/{user}"


def execute(state: State, command: Sequence[str], *, user: str = USER, machine: str = "login") -> int:
    """Run a command on the cluster, as `capture` does, with this process's own input, output and terminal.

    Returns:
        Its exit status as a shell gives it, which is 128 plus the number of the signal that ended it.
    """
    line = entering(state, machine, command, user=user, session=not os.isatty(0))
    sys.stdout.flush()
    # Ctrl-C is for the command. What ends this process ends the command, too.
    with handling(lambda _: None, signal.SIGINT, signal.SIGQUIT), ending_in_order():
        status = subprocess.run(line, check=False).returncode
    return status if status >= 0 else 128 - status


def capture(
    state: State,
    command: Sequence[str],
    *,
    user: str | None = USER,
    machine: str = "login",
    folder: str | None = None,
    login: bool = True,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster and return its output.

    Args:
        state: The cluster.
        command: What to run.
        user: Who runs it: a user of the cluster, or `root`; None is root without a login shell.
        machine: The machine where it runs.
        folder: The folder where it runs; by default, the user's home directory.
        login: Whether a user's command gets the environment of a login shell, as on a site. Otherwise, none of the
            user's files is read, so that only the command prints.
        timeout: Seconds after which it is killed.

    Raises:
        SpecificationError: There is no such user or machine.
        ClusterError: The machine is dead.
    """
    return subprocess.run(
        entering(state, machine, command, user=user, folder=folder, login=login),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout,
    )
