"""Every node starts torchrun with an id of its own, and waits for others with that id.

srunbook simulate --nodes 2 --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

from torch.distributed import run

# The mistake. In a job script: srun bash -c 'torchrun --rdzv-id=$RANDOM ...'
own_id = os.getpid()
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
run.main(
    [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        f"--rdzv-id={own_id}",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-conf=join_timeout=5",  # in place of 600 seconds
        "--no-python",
        "hostname",
    ]
)
