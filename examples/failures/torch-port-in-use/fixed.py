"""A port for each job, outside the range that the system hands out by itself.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os
from pathlib import Path

import torch.distributed as dist

job = int(os.environ["SLURM_JOB_ID"])
port = 25000 + job % 7000

lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
print(f"the system hands out {lowest} to {highest}; this job takes one from 25000 to 31999")
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
dist.destroy_process_group()
