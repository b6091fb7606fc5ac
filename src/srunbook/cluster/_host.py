"""What this machine must have to run a cluster, what a cluster may take of it, and the folder that it keeps."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._specification import Specification

CGROUPS = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("freezer", "memory", "cpuset", "devices", "cpuacct")
"""Hierarchies of version 1 that Slurm's plugins use."""

PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
    "debootstrap": "debootstrap",
}


def check_root() -> None:
    """Check that this process may make and end clusters."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise ClusterError("a cluster needs root on Linux, for namespaces and mounts: run it with sudo, or in a VM")


def check_host(*, making_root: bool = False) -> None:
    """Check that a cluster can run here, before anything is made."""
    check_root()
    wanted = [program for program in PACKAGES if making_root or program != "debootstrap"]
    missing = sorted({PACKAGES[program] for program in wanted if not shutil.which(program, path=SEARCH_PATH)})
    if missing:
        raise ClusterError(f"missing on this machine: {', '.join(missing)}. Try: apt-get install {' '.join(missing)}")


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN_ENVIRONMENT = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
"""Environment of everything that the cluster starts: nothing of the caller's leaks in."""


def has_cgroup_v1() -> bool:
    """Return whether the version 1 hierarchies that Slurm tracks and limits jobs with are mounted, and writable."""
    folders = [CGROUPS / controller for controller in V1_CONTROLLERS]
    return all((folder / "cgroup.procs").exists() and os.access(folder, os.W_OK) for folder in folders)


def hierarchies() -> list[Path]:
    """Return the mount points of the cgroup hierarchies; in each, every machine of a cluster gets its own group.

    A container may show its hierarchies read-only: then there are none for a cluster, and its machines have no limits
    but those that need no group.
    """
    if has_cgroup_v1():
        groups = {path.resolve() for path in CGROUPS.iterdir() if (path / "tasks").exists()}
        return sorted(path for path in groups if path.name != "systemd" and os.access(path, os.W_OK))
    if (CGROUPS / "cgroup.controllers").exists() and os.access(CGROUPS, os.W_OK):
        return [CGROUPS]
    return []


MEMORY_SHARE = 0.8
"""Share of the machine's memory that a whole cluster may take."""

PROCESSES = 4096
"""Processes and threads on a node, on a machine of up to 16 processors: libraries start threads for each of these."""


@dataclass(frozen=True)
class Limits:
    """Limits of a cluster.

    Args:
        processes: Processes and threads on each machine of the cluster.
        memory_mib: Memory of the whole cluster, including its files in memory, in MiB.
        shared_mib: Size of /dev/shm, and of /tmp, on each machine of the cluster, in MiB.
        enforced: Which of `processes` and `memory` a cgroup enforces; without a cgroup, nothing enforces them.
    """

    processes: int = PROCESSES
    memory_mib: int = 0
    shared_mib: int = 64
    enforced: tuple[str, ...] = ()


def limits_here(specification: Specification) -> Limits:
    """Choose the limits of a cluster on this machine, or in this container."""
    available = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in (CGROUPS / "memory.max", CGROUPS / "memory" / "memory.limit_in_bytes"):
        text = path.read_text(encoding="ascii").strip() if path.exists() else "max"
        available += [int(text)] if text.isdigit() else []
    memory = int(min(available) // 2**20 * MEMORY_SHARE)
    claimed = min(group.memory_mib for group in specification.groups.values())
    node = min(claimed, memory // len(specification.node_names))
    return Limits(
        processes=max(PROCESSES, PROCESSES * (os.cpu_count() or 1) // 16),
        memory_mib=memory,
        shared_mib=max(64, node // 2),
    )


def cache_folder() -> Path:
    """Return the cache folder: `srunbook` in the user's cache folder, whether it is there or not.

    Root runs what lies in it, so nobody else may write there.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().resolve() / "srunbook"
    if folder.is_dir() and (folder.stat().st_uid != os.geteuid() or folder.stat().st_mode & 0o022):
        raise ClusterError(
            f"{folder} belongs to another user, or others may write there, but root runs what lies there: "
            "remove it, or choose another cache folder with XDG_CACHE_HOME"
        )
    return folder


def make_folder(path: Path) -> Path:
    """Make a folder in the cache folder, and that, too; nobody but root may write there."""
    for place in (cache_folder(), path):
        place.mkdir(0o755, parents=True, exist_ok=True)
    return path


@contextmanager
def held(name: str, *, wait: bool) -> Iterator[None]:
    """Hold a lock of the cache folder; without waiting, a `BlockingIOError` says that another process holds it."""
    with (make_folder(cache_folder() / "locks") / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


@contextmanager
def reported() -> Iterator[None]:
    """Turn what the machine refuses into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise ClusterError(f"this machine refuses something that a cluster needs: {error}") from error
        raise ClusterError(
            f"{error.filename or cache_folder()}: no space is left. A cluster needs 0.5 GiB, the making of a root "
            "3 GiB: make room, or choose another folder with XDG_CACHE_HOME"
        ) from error
