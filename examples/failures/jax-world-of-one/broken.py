"""Four tasks, and each believes to be alone: four trainings, and one checkpoint file.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python broken.py
"""

from __future__ import annotations

import jax

# The mistake: jax.distributed.initialize() is missing. No message says so.
me, world = jax.process_index(), jax.process_count()
print(f"process {me} of {world}, {jax.device_count()} device in all")
print("writing checkpoint.npz" if me == 0 else "leaving the checkpoint to process 0")
