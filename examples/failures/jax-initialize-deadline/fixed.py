"""All processes go to the one address that JAX derives from the job: the first node, and a port from the job id.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax

# Where two steps of one job run at the same time, give each step a port, once, outside of srun:
#     JAX_COORDINATOR_PORT=20017 srun ...
jax.distributed.initialize(initialization_timeout=60)  # a minute is plenty once the job has started
print(f"process {jax.process_index()} of {jax.process_count()}")
