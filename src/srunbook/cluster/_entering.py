"""The way into a machine of the cluster: what a command there gets of the process that starts it, and what not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._groups import limiting_command, limiting_groups
from srunbook.cluster._host import CLEAN_ENVIRONMENT
from srunbook.cluster._state import State

JOIN = 'umask 022; while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
"""Joins the cgroups named before `--`, then becomes the command after it."""

KEYRING = 'syscall(0 + shift @ARGV, 1, 0); exec {$ARGV[0]} @ARGV or die "$ARGV[0]: $!\\n"'
"""Leaves the session keyring for an empty one, then becomes the command after the number of `keyctl`.

Whoever inherits a session keyring may read the keys in it, such as a Kerberos ticket. Every Debian has perl.
"""

KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
"""Number of the system call `keyctl`, by architecture."""

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
    terminal: bool = False,
) -> list[str]:
    """Return the command line that runs a command on a machine of the cluster, in a session of its own.

    The command inherits the three streams and TERM. It inherits no other variable: root looks for programs on PATH
    inside the machine, too, where the caller's PATH may name folders that a user can write to.

    Args:
        state: The cluster.
        machine: The machine.
        command: What to run.
        user: As whom: a user of the cluster, or root with root's login shell. Without it, as root without a shell.
        folder: Where a user's command runs; the user's home by default.
        login: Whether a user's command gets the environment of a login shell, as on a site. Otherwise no file of the
            user is read, so that nothing but the command prints.
        terminal: Whether its standard input becomes its controlling terminal.

    Raises:
        SpecificationError: There is no such user or machine.
        ClusterError: The machine is dead.
    """
    users = state.specification.users
    if user not in (None, ROOT, *users):
        raise SpecificationError(
            f"user {user!r}: the cluster has {', '.join(users)} and {ROOT}, as in --user {next(iter(users))}"
        )
    process = _first_process(state, machine)
    clean = [f"{name}={value}" for name, value in CLEAN_ENVIRONMENT.items()]
    start = ["env", "-i", *clean, f"TERM={os.environ.get('TERM', 'dumb')}", *limiting_command(state)]
    join = ["sh", "-c", JOIN, "sh", *(str(path / "cgroup.procs") for path in limiting_groups(state, machine)), "--"]
    enter = ["nsenter", f"--target={process}", "--mount", "--net", "--uts", "--ipc", "--pid", "--"]
    leave = ["setsid", *(["--ctty"] if terminal else [])]
    if number := KEYCTL.get(os.uname().machine):
        leave += ["perl", "-e", KEYRING, str(number)]
    switch = []
    if user is not None:
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env", "--pdeathsig=TERM"]
        switch += ["--", "bash", "-lc" if login else "-c", AS_USER, "bash", folder or home_of(user)]
    return [*start, *join, *enter, *leave, *switch, *command]


def home_of(user: str) -> str:
    """Return the home of a user on the cluster.

    >>> home_of("alice"), home_of(ROOT)
    ('/home/alice', '/root')
    """
    return f"/{ROOT}" if user == ROOT else f"/home/{user}"


def devices(state: State, machine: str) -> Path:
    """Return the folder `/dev` of a machine, as this machine reaches it.

    Raises:
        SpecificationError: There is no such machine.
        ClusterError: The machine is dead.
    """
    return Path(f"/proc/{_first_process(state, machine)}/root/dev")


def _first_process(state: State, machine: str) -> int:
    if machine not in state.machines:
        raise SpecificationError(f"node {machine!r}: the cluster has {', '.join(state.machines)}")
    return state.first_process(machine)
