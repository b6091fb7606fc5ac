"""One process for each node of two GPUs, and one of the two stays idle.

srunbook simulate --nodes 2 --ntasks-per-node 1 --gpus-per-node 2 -- python broken.py
"""

from __future__ import annotations

import logging
import os

import jax

logging.basicConfig(format="%(message)s")
logging.getLogger("jax._src.distributed").setLevel(logging.INFO)  # JAX says what it chose

# The mistake: left alone, JAX takes one GPU for each process, the one numbered SLURM_LOCALID.
jax.distributed.initialize()
gpus = int(os.environ["SLURM_GPUS_ON_NODE"])
print(f"process {jax.process_index()}: this node has {gpus} GPUs")
