"""Four tasks, and each believes to be alone: four trainings of the same model, and one checkpoint file.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python broken.py
"""

from __future__ import annotations

import jax

# The mistake: jax.distributed.initialize() is missing. No message says so.
print(f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} device in all")
print("writing checkpoint.npz" if jax.process_index() == 0 else "leaving the checkpoint to process 0")
