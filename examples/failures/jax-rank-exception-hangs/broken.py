"""One process fails; it then waits for the others, and they wait for it.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import jax
from jax.experimental import multihost_utils

# At the end JAX waits 300 seconds for all processes. Five are enough for a demonstration.
jax.distributed.initialize(shutdown_timeout_seconds=5)

if jax.process_index() == 1:
    raise FileNotFoundError("data/part-00001.npz")  # the cause, minutes before the rest

multihost_utils.sync_global_devices("step 1")  # process 0 waits here for process 1
print("step 1 done")
