"""Eight devices on one CPU, because somebody once typed an eight.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import os

from srunbook import initialize_distributed

os.environ.pop("JAX_NUM_CPU_DEVICES", None)
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"  # the mistake

dist_info = initialize_distributed()
cpus = os.environ.get("SLURM_CPUS_PER_TASK", "1")  # one, where nobody asks for more
print(f"Process {dist_info.process_id}: {dist_info.local_device_count} devices", end=" ")
print(f"on {cpus} CPU, {dist_info.global_device_count} in all")
