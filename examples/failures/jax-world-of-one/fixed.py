"""Four tasks make one job of four processes, and each of them checks it.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import jax

jax.distributed.initialize()
me, world = jax.process_index(), jax.process_count()
if world != int(os.environ["SLURM_NTASKS"]):
    raise RuntimeError(f"Slurm started {os.environ['SLURM_NTASKS']} tasks, JAX knows {world}")

print(f"process {me} of {world}, {jax.device_count()} devices in all")
print("writing checkpoint.npz" if me == 0 else "leaving the checkpoint to process 0")
