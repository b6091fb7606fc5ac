"""Ask the Slurm of this machine: the one place of this room that starts a program or opens a file."""

from __future__ import annotations

import os
import subprocess
from itertools import islice
from pathlib import Path

from srunbook._text import read_lines
from srunbook.slurm._asking import Accounting, Done, ask_accounting

HEAD = 1000
"""Lines of a script that are searched for its directives."""


def ask_sacct(job: str) -> Accounting:
    """Ask the sacct of this machine about a job, with all attempts of one that was requeued.

    Accounting lags the end of a job: this asks again, for up to 10 seconds, while the rows of a job that has left
    the queue are not final.

    Args:
        job: Number of the job, of an element of an array or of a component of a heterogeneous job. Of the latter,
            accounting tells all components.

    Returns:
        What accounting says; where nobody could be asked, `problem` says why.
    """
    clusters = os.environ.get("SLURM_CLUSTERS", "")
    if "," in clusters or clusters == "all":
        return Accounting(problem=f"SLURM_CLUSTERS={clusters}: each of these may have a job {job}; name one cluster")
    return ask_accounting(job, run_here)


def run_here(command: list[str]) -> Done:
    """Run a command of Slurm on this machine.

    Raises:
        OSError: There is no such command, or it did not answer within a minute.
    """
    try:
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
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(str(error)) from None


def head_here(path: str) -> list[str]:
    """Return the first lines of a script on this machine, none where it is no file or cannot be read."""
    try:
        if not Path(path).is_file():
            return []
        return [line.decode("utf-8", errors="replace") for line in islice(read_lines(Path(path)), HEAD)]
    except (OSError, ValueError):
        return []
