"""A batch of six rows is cut into four pieces.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

stage = PipelineStage(torch.nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 4, torch.nn.functional.mse_loss)
batch = torch.ones(6, 8)  # the mistake: pieces of 2, 2, 1 and 1 rows
schedule.step(*([batch] if rank == 0 else []), target=batch if rank == 1 else None)
