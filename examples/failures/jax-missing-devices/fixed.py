"""One process for each node of two GPUs, and it takes both.

    srunbook simulate --nodes 2 --ntasks-per-node 1 --gpus-per-node 2 -- python fixed.py

A line in the job script does it too: export JAX_LOCAL_DEVICE_IDS=0,1
"""

from __future__ import annotations

import logging
import os

import jax

logging.basicConfig(format="%(message)s")
logging.getLogger("jax._src.distributed").setLevel(logging.INFO)

gpus = int(os.environ["SLURM_GPUS_ON_NODE"])  # SLURM_GPUS_PER_NODE may read a100:2
jax.distributed.initialize(local_device_ids=range(gpus))
print(f"process {jax.process_index()}: this node has {gpus} GPUs")

# On a CPU the numbers have no effect.
if jax.default_backend() == "gpu" and jax.local_device_count() != gpus:
    raise RuntimeError(f"the node has {gpus} GPUs, JAX sees {jax.local_devices()}")
