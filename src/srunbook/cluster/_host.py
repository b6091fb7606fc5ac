"""What this machine must have to run a cluster, what it has, and what a cluster may take of it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from srunbook.cluster._cache import check_room
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._specification import Specification

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
    """Check that this process may make and end clusters."""
    if sys.platform != "linux":
        raise ClusterError(
            f"a cluster needs Linux and its namespaces; this is {sys.platform}. Use a Linux machine or VM"
        )
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root, for namespaces and mounts: run it with sudo, or in a VM of your own")


def check_host(*, making_root: bool = False) -> None:
    """Check that a cluster can run here, before anything is made."""
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

LEAST_SHARED_MIB = 64


@dataclass(frozen=True)
class Limits:
    """Limits of a cluster.

    Args:
        processes: Processes and threads on each machine of the cluster.
        all_processes: Processes and threads on all its machines.
        memory_mib: Memory of the whole cluster with its files in memory, in MiB.
        shared_mib: Size of /dev/shm, and of /tmp, on each machine of the cluster, in MiB.
        grouped: Which of `processes` and `memory` hold by a cgroup. Without one, each user has `all_processes` on all
            machines together, and only files in memory have a limit.
    """

    processes: int
    all_processes: int
    memory_mib: int
    shared_mib: int
    grouped: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """Return a sentence for each limit.

        >>> for line in Limits(4096, 16384, 19284, 2410, ("memory",)).describe():
        ...     print(line)
        16384 processes of each user on all nodes (no cgroup with the controller pids is writable here)
        18.8 GiB of memory for the whole cluster
        2.4 GiB in /dev/shm, and as much in /tmp, on each node
        """
        missing = "(no cgroup with the controller {} is writable here)"
        return [
            f"{self.processes} processes on each node"
            if "processes" in self.grouped
            else f"{self.all_processes} processes of each user on all nodes {missing.format('pids')}",
            f"{self.memory_mib / 1024:.1f} GiB of memory for the whole cluster"
            if "memory" in self.grouped
            else f"no limit on the memory of the whole cluster {missing.format('memory')}",
            f"{self.shared_mib / 1024:.1f} GiB in /dev/shm, and as much in /tmp, on each node",
        ]


def describe_processors(processors: int) -> str:
    """Return a sentence on what tasks see of the machine's processors.

    >>> print(describe_processors(2))
    each task is bound to as many CPUs as it asked for, of the 2 that this machine has
    """
    if processors == 1:
        return "all tasks share the one CPU that this machine has: a forgotten --cpus-per-task does not show"
    return f"each task is bound to as many CPUs as it asked for, of the {processors} that this machine has"


def choose_limits(
    specification: Specification, *, memory_mib: int, processors: int = 1, most_processes: int = 32768
) -> Limits:
    """Choose the limits of a cluster.

    Args:
        specification: The cluster.
        memory_mib: Memory of the machine it runs on, in MiB.
        processors: Processors of that machine.
        most_processes: Processes and threads that the machine can have.

    >>> choose_limits(Specification(nodes=4), memory_mib=24000)
    Limits(processes=4096, all_processes=16384, memory_mib=19200, shared_mib=2400, grouped=())
    """
    memory = int(memory_mib * MEMORY_SHARE)
    claimed = min(group.memory_mib for group in specification.groups.values())
    node = min(claimed, memory // len(specification.node_names))
    processes = max(PROCESSES, PROCESSES * processors // 16)
    return Limits(
        processes=processes,
        all_processes=min(processes * len(specification.machines), most_processes // 2),
        memory_mib=memory,
        shared_mib=max(LEAST_SHARED_MIB, node // 2),
    )


def limits_here(specification: Specification) -> Limits:
    """Choose the limits of a cluster on this machine, or in this container."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in (CGROUPS / "memory.max", CGROUPS / "memory" / "memory.limit_in_bytes"):
        text = path.read_text(encoding="ascii").strip() if path.exists() else "max"
        limits += [int(text)] if text.isdigit() else []
    most = (Path("/proc/sys/kernel") / name for name in ("pid_max", "threads-max"))
    return choose_limits(
        specification,
        memory_mib=min(limits) // 2**20,
        processors=os.cpu_count() or 1,
        most_processes=min(int(path.read_text(encoding="ascii")) for path in most),
    )
