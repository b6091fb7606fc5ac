"""The first stage returns 16 numbers for each row, and the second expects 8.

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

layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.Linear(8, 8)
mine = torch.nn.Sequential(*(layers[:1] if rank == 0 else layers[3:]))  # the mistake: two layers are missing
schedule = ScheduleGPipe(PipelineStage(mine, rank, 2, torch.device("cpu")), 2, torch.nn.functional.mse_loss)
batch = torch.ones(4, 8)
schedule.step(*([batch] if rank == 0 else []), target=batch if rank == 1 else None)
