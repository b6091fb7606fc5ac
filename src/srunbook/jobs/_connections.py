"""How many connections the processes of a JAX job on CPUs have to each other: each is an open file."""

from __future__ import annotations

from srunbook import distributed
from srunbook.jobs._specification import JobSpecification

FILES = 1024
"""Files that a process may have open on many systems."""


def connections(specification: JobSpecification, devices_per_process: int | None = None) -> int:
    """TCP connections of each process, as `srunbook.distributed.connections` counts them.

    Args:
        specification: The job.
        devices_per_process: As if the job had so many.

    Returns:
        About how many; 0 where there is one process, or where CPU devices of JAX do not meet.
    """
    one = specification
    processes = one.nodes * one.processes
    if one.framework != "jax" or one.platform != "cpu":
        return 0
    return distributed.connections(processes, devices_per_process or one.devices // processes)


def advice(specification: JobSpecification) -> str | None:
    """What to do about too many connections; None where they are few.

    >>> one = JobSpecification(nodes=4, cpus_per_node=16, script="train.py")
    >>> advice(one)
    '--set devices_per_process=8 makes it 272'
    """
    one, left = specification, FILES - distributed.OTHER_FILES
    if connections(one) <= left:
        return None
    devices = distributed.most_devices(one.nodes * one.processes, one.cpus_per_node // one.processes, left)
    if devices is None:
        return "take fewer processes, or have the limit raised (ulimit -Hn)"
    return f"--set devices_per_process={devices} makes it {connections(specification, devices)}"
