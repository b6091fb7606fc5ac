"""Says at once which name is unknown; then all ranks meet at an address.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os
import socket

import torch.distributed as dist

name = os.environ.get("MASTER_ADDR", "127.0.0.1")
try:
    address = socket.gethostbyname(name)
except socket.gaierror as error:
    raise SystemExit(f"{socket.gethostname()} does not know {name}: {error}") from None
rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=2)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
dist.barrier()  # no rank leaves while another still needs rank 0
dist.destroy_process_group()
