"""Start JAX on all processes of a Slurm step, or of this machine, with one call before the first use of JAX.

    >>> from srunbook.distributed import find_place
    >>> place = find_place(coordinator_address="node1:5000", num_processes=4, process_id=1)
    >>> place.process_id, place.num_processes, place.coordinator_address
    (1, 4, 'node1:5000')

- `initialize_distributed` starts JAX and returns a `DistributedInfo`, which is also a context manager.
- `DistributedError` is raised for any wrong use; its message says what to change.
- `find_place` only reads the environment.
"""

from __future__ import annotations

from srunbook.distributed.place import DistributedError, Place, find_place
from srunbook.distributed.start import DistributedInfo, initialize_distributed

__all__ = ["DistributedError", "DistributedInfo", "Place", "find_place", "initialize_distributed"]
