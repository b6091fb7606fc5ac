"""Another program has the port that was meant, and the coordinator takes one that follows from the job.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import jax

# In a job script: export JAX_COORDINATOR_PORT=$((25000 + (SLURM_JOB_ID + 100 * step) % 7000))
os.environ["JAX_COORDINATOR_PORT"] = str(25000 + int(os.environ["SLURM_JOB_ID"]) % 7000)
jax.distributed.initialize()
print(f"process {jax.process_index()} of {jax.process_count()}")
