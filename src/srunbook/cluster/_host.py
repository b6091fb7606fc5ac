"""What the host must have to run a cluster, and what it has."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from srunbook.cluster._errors import ClusterError

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
ROOT_BYTES = 3 * 2**30
"""Room for one root: the finished one and what its making needs."""
RUN_BYTES = 512 * 2**20


def cache_folder() -> Path:
    """Return the folder that holds roots, images and running clusters: `srunbook` in the user's cache folder.

    Raises:
        ClusterError: Its path has a character that a mount option cannot carry.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(base).expanduser().resolve() / "srunbook"
    if re.search(r"[\s,:\\]", str(folder)):
        raise ClusterError(f"cache folder {folder}: its path must be free of spaces, commas, colons and backslashes")
    return folder


def check_host(*, making_root: bool = False) -> None:
    """Check that a cluster can run here, before anything is made.

    Args:
        making_root: Whether a root has to be made first.

    Raises:
        ClusterError: Something is missing; the message says how to get it.
    """
    if sys.platform != "linux":
        raise ClusterError(
            f"a cluster needs Linux and its namespaces; this is {sys.platform}. Use a Linux machine or VM"
        )
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root, for namespaces and mounts: run it with sudo, or in a VM of your own")
    wanted = [program for program in PACKAGES if making_root or program != "debootstrap"]
    missing = sorted({PACKAGES[program] for program in wanted if not shutil.which(program, path=SEARCH_PATH)})
    if missing:
        raise ClusterError(f"missing on this machine: {', '.join(missing)}. Try: apt-get install {' '.join(missing)}")
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    needed = ROOT_BYTES if making_root else RUN_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ClusterError(
            f"{folder} has {free / 2**30:.1f} GiB free, and {needed / 2**30:.1f} GiB are needed: "
            "make room, or choose another folder with XDG_CACHE_HOME"
        )


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLEAN_ENVIRONMENT = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
"""Environment of everything that the cluster starts: nothing of the caller's leaks in."""


def has_cgroup_v1() -> bool:
    """Tell whether the version 1 hierarchies are mounted that Slurm tracks and limits jobs with."""
    return all((CGROUPS / controller / "cgroup.procs").exists() for controller in V1_CONTROLLERS)


def hierarchies() -> list[Path]:
    """Return the mount points of the cgroup hierarchies; in each, every machine of a cluster gets its own group."""
    if has_cgroup_v1():
        found = {path.resolve() for path in CGROUPS.iterdir() if (path / "tasks").exists()}
        return sorted(path for path in found if path.name != "systemd")
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return []
