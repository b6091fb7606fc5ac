"""Every process chooses a port of its own, and nobody finds process 0.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import jax

# The mistake. In a job script: srun bash -c 'JAX_COORDINATOR_PORT=$RANDOM python train.py'
os.environ["JAX_COORDINATOR_PORT"] = str(20000 + os.getpid() % 10000)

# JAX waits 300 seconds unless told otherwise; five are enough for a demonstration.
jax.distributed.initialize(initialization_timeout=5)
print(f"process {jax.process_index()} of {jax.process_count()}")
