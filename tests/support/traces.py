"""What the clusters of this process could leave on the host; other test runs start clusters beside them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

from srunbook.cluster import names, read_state
from srunbook.cluster._host import cache_folder
from srunbook.cluster._state import start_time

SUBREAPER = 36
"""Number of PR_SET_CHILD_SUBREAPER."""

PORTS = {f"{port:04X}" for port in (3306, 6817, 6818, 6819)}
"""Ports of MariaDB and of Slurm's daemons, as /proc/net/tcp writes them."""

KINDS = ("net", "mnt", "uts", "pid", "ipc")


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Be the parent of every descendant that loses its own, so that none is overlooked.

    At the end those that are dead are waited for: else no cluster that one of them ran in could end.
    """
    own = children()
    _adopt(1)
    try:
        yield
    finally:
        _adopt(0)
        reap(children() - own)


def _adopt(whether: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, whether, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children() -> set[int]:
    """Return the process ids of all children of this process, those that have ended included."""
    return {int(word) for task in Path("/proc/self/task").glob("*/children") for word in task.read_text().split()}


def reap(strangers: set[int]) -> None:
    """Wait for children that have ended and that this process did not start, as process 1 would in its place.

    The first process of a namespace ends only when somebody has waited for all others in it.
    """
    for process in strangers:
        if start_time(process) is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)


def descendants() -> set[int]:
    """Return the process ids of all living descendants, those started by a thread included."""
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                young = {int(word) for word in task.read_text(encoding="ascii").split()} - found
            except OSError:  # it has ended meanwhile
                continue
            found |= young
            waiting += young
    return {process for process in found if start_time(process) is not None}


def processes() -> set[str]:
    """Return number and command line of every descendant that is alive."""
    found = set()
    for process in descendants():
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found.add(f"{process} {words}")
    return found


def namespaces() -> set[str]:
    """Return the namespaces of all descendants that are not those of this process."""
    own = {f"{Path(f'/proc/self/ns/{kind}').readlink()}" for kind in KINDS}
    found = set()
    for process in descendants():
        for kind in KINDS:
            try:
                found.add(f"{Path(f'/proc/{process}/ns/{kind}').readlink()}")
            except OSError:
                continue
    return found - own


def cgroups(prefix: str) -> set[str]:
    """Return the cgroups of clusters, but for those on record as another test run's."""
    there = {str(path) for path in Path("/sys/fs/cgroup").glob("*/srunbook-*")}
    there |= {str(path) for path in Path("/sys/fs/cgroup").glob("srunbook-*")}
    records = [read_state(name) for name in names() if not name.startswith(prefix)]
    foreign = {str(Path(group).resolve()) for record in records if record for group in record.groups}
    return {path for path in there if str(Path(path).resolve()) not in foreign}


def traces(prefix: str) -> dict[str, set[str]]:
    """Return what clusters whose names begin so could leave on the host, by kind."""
    sockets = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    return {
        "processes": processes(),
        "namespaces": namespaces(),
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "sockets": {line.split()[-1] for line in sockets if re.search("munge|mysqld|mariadb|slurm", line)},
        "listening": {
            line.split()[1]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].rpartition(":")[2] in PORTS
        },
        "cgroups": cgroups(prefix),
        "records": {name for name in names() if name.startswith(prefix)},
        "folders": {path.name for path in (cache_folder() / "clusters").glob(f"{prefix}*")},
    }
