"""One process fails and leaves at once; srun ends the others.

    srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py

In a job script, srun needs --kill-on-bad-exit=1 for its part.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType

import jax
from jax.experimental import multihost_utils


def leave_at_once(
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Prints the traceback, and ends this process where JAX would wait for the others."""
    traceback.print_exception(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


jax.distributed.initialize(shutdown_timeout_seconds=5)
sys.excepthook = leave_at_once

if jax.process_index() == 1:
    raise FileNotFoundError("data/part-00001.npz")

multihost_utils.sync_global_devices("step 1")
print("step 1 done")
