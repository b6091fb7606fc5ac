"""Asking the Slurm of a cluster, for those who read its answers in `srunbook.slurm`."""

from __future__ import annotations

import subprocess

from srunbook.cluster._entering import entering
from srunbook.cluster._state import State
from srunbook.slurm import Run


def asking(state: State, user: str | None = None) -> Run:
    """Return what runs a command of Slurm on the login node, as root or as a user, without the user's profile."""

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            entering(state, "login", command, user=user, login=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    return run
