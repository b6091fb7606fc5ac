"""A node has done its part and waits for the other, whose torchrun is killed.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch.distributed as dist
from torch.distributed import run


def train() -> None:
    """Meet the other process; then end on one node, and lose the torchrun of the other."""
    dist.init_process_group("gloo")
    told = [None, None]
    dist.all_gather_object(told, (node, os.getpid()))
    second = dict(told)[1]
    print(f"rank {dist.get_rank()} of 2 has finished", flush=True)
    dist.destroy_process_group()
    if node == 0:
        while Path(f"/proc/{second}").exists():  # until the other torchrun knows that its process is done
            time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGKILL)  # as scancel, or the end of a node


node = int(os.environ["SLURM_NODEID"])
if "RANK" in os.environ:
    train()
else:
    port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
    first_keeps_the_store = f"--rdzv-conf=is_host={node == 0}"
    run.main(
        ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", first_keeps_the_store, __file__]
    )
