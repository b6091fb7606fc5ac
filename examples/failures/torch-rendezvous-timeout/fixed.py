"""One id and one endpoint for all nodes: the job's.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

from __future__ import annotations

import os

from torch.distributed import run

job = int(os.environ["SLURM_JOB_ID"])
run.main(
    [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        f"--rdzv-id={job}",
        f"--rdzv-endpoint=127.0.0.1:{25000 + job % 7000}",
        "--rdzv-conf=join_timeout=120",
        "--no-python",
        *("bash", "-c", 'echo "rank $RANK of $WORLD_SIZE"'),
    ]
)
