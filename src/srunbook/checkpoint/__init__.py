"""Save checkpoints that survive what happens to jobs, and agree on stop signals between ranks.

- `Checkpoints` saves and restores named tensors: whole or not at all, on one process or on many.
- `Shard` is the part of a global tensor that one process holds.
- `flatten` turns a nested state, such as that of an optimizer, into named tensors; `unflatten` turns them back.
- `StopSignal` turns SIGTERM, SIGUSR1 and SIGUSR2 into one decision of all ranks at the same step.
"""

from __future__ import annotations

from srunbook.checkpoint._arrays import Index, Shard
from srunbook.checkpoint._checkpoints import Checkpoints
from srunbook.checkpoint._errors import CheckpointError, DamagedError
from srunbook.checkpoint._restoring import Restored
from srunbook.checkpoint._stop import EXIT_DO_NOT_REQUEUE, EXIT_STOPPED, StopSignal, requeue_job
from srunbook.checkpoint._tree import flatten, unflatten

__all__ = [
    "EXIT_DO_NOT_REQUEUE",
    "EXIT_STOPPED",
    "CheckpointError",
    "Checkpoints",
    "DamagedError",
    "Index",
    "Restored",
    "Shard",
    "StopSignal",
    "flatten",
    "requeue_job",
    "unflatten",
]
