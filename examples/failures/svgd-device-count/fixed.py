"""As many devices as the task has CPUs.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os

from srunbook import initialize_distributed

# In a job script: export JAX_NUM_CPU_DEVICES="$SLURM_CPUS_PER_TASK"
# Or set nothing at all: then initialize_distributed() counts the CPUs of the task.
os.environ.pop("JAX_NUM_CPU_DEVICES", None)

dist_info = initialize_distributed()
cpus = os.environ.get("SLURM_CPUS_PER_TASK", "1")  # one, where nobody asks for more
print(f"Process {dist_info.process_id}: {dist_info.local_device_count} device", end=" ")
print(f"on {cpus} CPU, {dist_info.global_device_count} in all")
