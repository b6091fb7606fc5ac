"""Started by srun, or with a clear word about it.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os
import sys

import jax

if "SLURM_STEP_NODELIST" not in os.environ:  # srun sets it; a job script does not have it
    print(f"start me with srun: srun python {sys.argv[0]}", file=sys.stderr)
    sys.exit(2)

jax.distributed.initialize()
print(f"process {jax.process_index()} of {jax.process_count()}")
