"""Checkpoints that survive what happens to jobs, and stop signals that all ranks agree on.

- `Checkpoints` saves and restores named tensors: whole or not at all, on one process or on many.
- `Shard` is the part of a global tensor that one process has.
- `StopSignal` turns SIGTERM, SIGUSR1 and SIGUSR2 into one decision of all ranks at the same step.
"""

from __future__ import annotations

from srunbook.checkpoint._arrays import Index, Shard
from srunbook.checkpoint._checkpoints import Checkpoints
from srunbook.checkpoint._errors import CheckpointError, DamagedError
from srunbook.checkpoint._restoring import Restored
from srunbook.checkpoint._stop import EXIT_DO_NOT_REQUEUE, EXIT_STOPPED, StopSignal, requeue_job

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
    "requeue_job",
]
