"""A batch of eight rows is cut into four pieces.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
BATCH_SIZE, PIECES = 8, 4
if BATCH_SIZE % PIECES:
    sys.exit(f"error: {BATCH_SIZE} rows do not divide into {PIECES} pieces")

stage = PipelineStage(torch.nn.Linear(8, 8), rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, PIECES, torch.nn.functional.mse_loss)
batch = torch.ones(BATCH_SIZE, 8)
schedule.step(*([batch] if rank == 0 else []), target=batch if rank == 1 else None)
print(f"rank {rank}: one step is done")
dist.destroy_process_group()
