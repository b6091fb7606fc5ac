"""Count the connections between the processes of a JAX job on CPUs: each of them is an open file."""

from __future__ import annotations

from srunbook._connections import OTHER_FILES, most_devices
from srunbook._connections import connections as connections_of_process
from srunbook.generate._specification import JobSpecification

FILES = 1024
"""Files that a process may have open on many systems."""

WARNING = (
    "each process has about {count} connections, and many systems let it open {files} files: {advice}; "
    "a program that calls initialize_distributed() may open as many as `ulimit -Hn` says on the nodes"
)
"""What `warning` says."""


def connections(specification: JobSpecification, devices_per_process: int | None = None) -> int:
    """Count the TCP connections of each process, as `srunbook.distributed.connections` does.

    Args:
        specification: The job.
        devices_per_process: Count as if each process had this many devices.

    Returns:
        About how many; 0 for a single process, and for frameworks and platforms whose devices do not connect this way.
    """
    one = specification
    processes = one.nodes * one.processes
    if one.framework != "jax" or one.platform != "cpu":
        return 0
    return connections_of_process(processes, devices_per_process or one.devices // processes)


def advice(specification: JobSpecification) -> str | None:
    """Say what to do about too many connections; return None if there are few enough.

    >>> one = JobSpecification(nodes=4, cpus_per_node=16, script="train.py")
    >>> advice(one)
    '--set devices_per_process=8 makes it 272'
    """
    one, left = specification, FILES - OTHER_FILES
    if connections(one) <= left:
        return None
    devices = most_devices(one.nodes * one.processes, one.cpus_per_node // one.processes, left)
    if devices is None:
        return "take fewer processes, or have the limit raised (ulimit -Hn)"
    return f"--set devices_per_process={devices} makes it {connections(specification, devices)}"


def warning(specification: JobSpecification) -> str | None:
    """Warn about a job whose processes would open too many files; return None if there are few enough."""
    way_out = advice(specification)
    return way_out and WARNING.format(count=connections(specification), files=FILES, advice=way_out)
