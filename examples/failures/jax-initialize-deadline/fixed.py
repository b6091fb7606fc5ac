"""All processes go to one address: the first node of the job, and a port from its id.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import jax

# Two steps of one job at the same time need two ports, set once for each, outside of srun:
#     JAX_COORDINATOR_PORT=20017 srun ...
jax.distributed.initialize(initialization_timeout=60)  # a minute: the job has started
print(f"process {jax.process_index()} of {jax.process_count()}")
