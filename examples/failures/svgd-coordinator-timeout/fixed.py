"""The port follows from the numbers of job and step: the same for all processes, another one for each job.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

from srunbook import initialize_distributed

# Where a firewall lets one port through, set it once and outside of srun: export JAX_COORDINATOR_PORT=54321
dist_info = initialize_distributed()
print(f"Process {dist_info.process_id}/{dist_info.num_processes}")
