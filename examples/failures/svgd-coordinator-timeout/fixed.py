"""The port follows from the numbers of job and step: the same for all processes, another one for each job.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

from srunbook import initialize_distributed

# Where a site opens other ports than these, take one of them, before srun: export JAX_COORDINATOR_PORT=54321
dist_info = initialize_distributed()
print(f"Process {dist_info.process_id}/{dist_info.num_processes}")
