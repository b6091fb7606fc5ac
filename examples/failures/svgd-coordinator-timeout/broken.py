"""Every process takes a port of its own, and nobody finds process 0.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

# The mistake. In a job script: srun bash -c 'JAX_COORDINATOR_PORT=$RANDOM python train.py'
os.environ["JAX_COORDINATOR_PORT"] = str(20000 + int(os.environ["SLURM_PROCID"]))

from srunbook import initialize_distributed

# It waits for 120 seconds unless told otherwise; ten are enough for a demonstration.
dist_info = initialize_distributed(timeout=10)
print(f"Process {dist_info.process_id}/{dist_info.num_processes}")
