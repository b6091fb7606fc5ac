"""What a cluster may take of the machine that it runs on, so that a job out of control ends before the machine does."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from srunbook.cluster._host import CGROUPS
from srunbook.cluster._specification import Specification

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

    def with_groups(self, grouped: tuple[str, ...]) -> Limits:
        """Return these limits with those on record that hold by a cgroup."""
        return replace(self, grouped=grouped)

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
