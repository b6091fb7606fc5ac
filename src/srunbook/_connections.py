"""Count the connections between the processes of a JAX job on CPUs. Standard library only; every room may use it."""

from __future__ import annotations

import contextlib
import os
import resource

OTHER_FILES = 100
"""Files that a process may open besides its connections: libraries, data, checkpoints, sockets of the start."""


def connections(processes: int, devices: int) -> int:
    """Count the connections of a process whose devices are CPUs; each is an open file.

    Each device is connected to all others and, for what `multihost_utils` sends between processes, once more to those
    of the same number in other processes. In a single process no device has a connection.

    >>> connections(2, 32), connections(4, 16)  # 2052 and 1064 were counted, with those of the coordinator
    (2048, 1056)
    """
    if processes == 1:
        return 0
    return devices * (processes * devices - 1) + devices * (processes - 1)


def most_devices(processes: int, share: int, files: int) -> int | None:
    """Return the most devices for each process that divide its share of CPUs and need at most so many open files.

    None says that one device in each process is already too many.

    >>> most_devices(4, 16, 924), most_devices(4, 15, 924), most_devices(1000, 2, 924)
    (8, 5, None)
    """
    fitting = (n for n in range(share, 0, -1) if share % n == 0 and connections(processes, n) <= files)
    return next(fitting, None)


def shortage(processes: int, devices: int) -> str | None:
    """Let this process open as many files as it may; if its connections need more, say what to change."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # then the soft limit is what there is
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    left = limit - len(os.listdir("/dev/fd")) - OTHER_FILES  # noqa: PTH208 - only their number counts
    needed = connections(processes, devices)
    if limit == resource.RLIM_INFINITY or needed <= left:
        return None
    fewer = most_devices(processes, devices, left)
    way_out = (
        f"Use fewer devices: export JAX_NUM_CPU_DEVICES={fewer}, or srunbook generate --set devices_per_process={fewer}"
        if fewer
        else "Use fewer processes, as in: srun --ntasks=4 python train.py, or ask for a higher limit"
    )
    return (
        f"{devices} CPU devices in each of {processes} processes need {needed} connections in each process, and it may "
        f"open {limit} files (ulimit -Hn). {way_out}"
    )
