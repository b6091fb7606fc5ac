"""gloo is given the name of an interface in the language of NCCL.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import os

import torch.distributed as dist

port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
# The mistake: NCCL reads ^ as "all but these". gloo looks for an interface of this name.
os.environ["GLOO_SOCKET_IFNAME"] = "^docker,lo"
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
