"""gloo is given the one interface that leads to rank 0.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os
import socket

import torch.distributed as dist

print("interfaces:", *sorted(name for _, name in socket.if_nameindex()))

port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
# On a cluster: `ip route get ADDRESS-OF-RANK-0` prints the name after the word dev.
os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # here rank 0 is on the same machine
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
dist.destroy_process_group()
