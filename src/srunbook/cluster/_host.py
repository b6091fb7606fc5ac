"""What the host must have to run a cluster, and what it has."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._room import check_room

CGROUPS = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("freezer", "memory", "cpuset", "devices", "cpuacct")
"""Hierarchies of version 1 that Slurm's plugins use."""

PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "prlimit": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
    "debootstrap": "debootstrap",
}


def check_root() -> None:
    """Check that this process may make and end clusters.

    Raises:
        ClusterError: It may not; the message says what to do.
    """
    if sys.platform != "linux":
        raise ClusterError(
            f"a cluster needs Linux and its namespaces; this is {sys.platform}. Use a Linux machine or VM"
        )
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root, for namespaces and mounts: run it with sudo, or in a VM of your own")


def check_host(*, making_root: bool = False) -> None:
    """Check that a cluster can run here, before anything is made.

    Args:
        making_root: Whether a root has to be made first.

    Raises:
        ClusterError: Something is missing; the message says how to get it.
    """
    check_root()
    wanted = [program for program in PACKAGES if making_root or program != "debootstrap"]
    missing = sorted({PACKAGES[program] for program in wanted if not shutil.which(program, path=SEARCH_PATH)})
    if missing:
        raise ClusterError(f"missing on this machine: {', '.join(missing)}. Try: apt-get install {' '.join(missing)}")
    check_room(making_root=making_root)


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN_ENVIRONMENT = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
"""Environment of everything that the cluster starts: nothing of the caller's leaks in."""


def has_cgroup_v1() -> bool:
    """Tell whether the version 1 hierarchies that Slurm tracks and limits jobs with are mounted, and writable."""
    folders = [CGROUPS / controller for controller in V1_CONTROLLERS]
    return all((folder / "cgroup.procs").exists() and os.access(folder, os.W_OK) for folder in folders)


def hierarchies() -> list[Path]:
    """Return the mount points of the cgroup hierarchies; in each, every machine of a cluster gets its own group.

    A container may show its hierarchies read-only: then there are none for a cluster, and its machines have no limits
    but those of `srunbook.cluster._limits` that need no group.
    """
    if has_cgroup_v1():
        found = {path.resolve() for path in CGROUPS.iterdir() if (path / "tasks").exists()}
        return sorted(path for path in found if path.name != "systemd" and os.access(path, os.W_OK))
    if (CGROUPS / "cgroup.controllers").exists() and os.access(CGROUPS, os.W_OK):
        return [CGROUPS]
    return []
