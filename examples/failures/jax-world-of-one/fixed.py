"""Four tasks make one job of four processes, and each of them checks it.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import jax

jax.distributed.initialize()
if jax.process_count() != int(os.environ["SLURM_NTASKS"]):
    raise RuntimeError(f"Slurm started {os.environ['SLURM_NTASKS']} tasks, JAX knows {jax.process_count()}")

print(f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices in all")
print("writing checkpoint.npz" if jax.process_index() == 0 else "leaving the checkpoint to process 0")
