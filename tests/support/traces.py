"""What the clusters of this process could leave on the host; other test runs start clusters beside them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from srunbook.cluster._host import cache_folder

SUBREAPER = 36
"""Number of PR_SET_CHILD_SUBREAPER."""


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Be the parent of every descendant that loses its own, so that none is overlooked.

    At the end those that are dead are waited for: else no cluster that one of them ran in could end.
    """
    before = children()
    _adopt(1)
    try:
        yield
    finally:
        _adopt(0)
        reap(children() - before)


def _adopt(whether: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, whether, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children() -> set[int]:
    """Return the process ids of all children of this process, those that have ended included."""
    return {child.pid for child in psutil.Process().children()}


def reap(strangers: set[int]) -> None:
    """Wait for children that have ended and that this process did not start, as process 1 would in its place.

    The first process of a namespace ends only when somebody has waited for all others in it.
    """
    for process in strangers:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


def processes() -> set[str]:
    """Return number and command line of every descendant that is alive."""
    lines = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile, or nobody has waited for it
            lines.add(f"{process.pid} {' '.join(process.cmdline())}")
    return lines


def traces(prefix: str) -> dict[str, set[str]]:
    """Return what clusters whose names begin so could leave on the host, by kind.

    Namespaces and sockets need a process that has them, or a mount; a record is in a folder.
    """
    hierarchies = Path("/sys/fs/cgroup")
    return {
        "processes": processes(),
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "cgroups": {str(path) for place in ("", "*/") for path in hierarchies.glob(f"{place}srunbook-{prefix}*")},
        "folders": {path.name for path in (cache_folder() / "clusters").glob(f"{prefix}*")},
    }
