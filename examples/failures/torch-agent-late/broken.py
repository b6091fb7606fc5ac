"""The torchrun of the first node leaves while the other is held up.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import torch.distributed as dist
from torch.distributed import run


def train() -> None:
    """Meet the other process; then see to it that the second torchrun is late."""
    dist.init_process_group("gloo")
    told = [None, None]
    dist.all_gather_object(told, (node, os.getppid()))
    torchruns = dict(told)
    first, second = torchruns[0], torchruns[1]
    print(f"rank {dist.get_rank()} of 2 has finished", flush=True)
    dist.destroy_process_group()
    if node == 0:  # end when the second torchrun is held up
        while Path(f"/proc/{second}/stat").read_text().split()[2] != "T":
            time.sleep(0.1)
    else:  # hold it up, as a busy machine would, until the first has left
        until_it_waits = f"tail --pid={os.getpid()} -f /dev/null; sleep 2"
        held = f"kill -STOP {second}; timeout 60 tail --pid={first} -f /dev/null; kill -CONT {second}"
        subprocess.Popen(["sh", "-c", f"{until_it_waits}; {held}"], start_new_session=True)


node = int(os.environ["SLURM_NODEID"])
if "RANK" in os.environ:
    train()
else:
    port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
    first_keeps_the_store = f"--rdzv-conf=is_host={node == 0}"
    run.main(
        ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", first_keeps_the_store, __file__]
    )
