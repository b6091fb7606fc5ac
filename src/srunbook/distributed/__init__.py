"""Start JAX on all processes of a Slurm step, or of this machine, with one call before the first use of JAX.

    >>> from srunbook.distributed import find_place
    >>> place = find_place(coordinator_address="node1:5000", num_processes=4, process_id=1)
    >>> place.process_id, place.num_processes, place.host
    (1, 4, 'node1')

- `initialize_distributed` finds the other processes, starts JAX, and returns a `DistributedInfo`.
- `DistributedInfo` describes this process and all of them. As a context manager it ends all processes together.
- `DistributedError` is raised for every wrong use; its message names the fix.
- `connections` counts the connections of a process with so many CPU devices; `most_devices` returns how many devices
  fit into a limit on open files, of which `OTHER_FILES` are kept for everything else.
- `find_place` only reads the environment, for tests and for the curious.

The processes find each other at the coordinator's port. Port scanners, idle connections and servers of other programs
do not stop them: rank 0 closes a connection that does not report within 5 seconds, and reads no more of it than a short
line. But the processes trust the network: Slurm gives those of a job no secret in common, so rank 0 believes whoever
names the right job, step and rank, as JAX's own coordinator, which takes over the port, believes everybody.
"""

from __future__ import annotations

from srunbook._connections import OTHER_FILES, connections, most_devices
from srunbook.distributed._errors import DistributedError
from srunbook.distributed._info import DistributedInfo
from srunbook.distributed._place import Place, find_place
from srunbook.distributed._start import DEFAULT_TIMEOUT, initialize_distributed

__all__ = [
    "DEFAULT_TIMEOUT",
    "OTHER_FILES",
    "DistributedError",
    "DistributedInfo",
    "Place",
    "connections",
    "find_place",
    "initialize_distributed",
    "most_devices",
]
