"""Each stage begins with the layer after the last one of the stage before.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank = int(os.environ["SLURM_PROCID"])
port = 25000 + int(os.environ["SLURM_JOB_ID"]) % 7000
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)

layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.Linear(8, 8)
cuts = [0, 2, len(layers)]  # one list for all ranks: nothing is left out or computed twice
mine = torch.nn.Sequential(*layers[cuts[rank] : cuts[rank + 1]])
schedule = ScheduleGPipe(PipelineStage(mine, rank, 2, torch.device("cpu")), 2, torch.nn.functional.mse_loss)
batch = torch.ones(4, 8)
schedule.step(*([batch] if rank == 0 else []), target=batch if rank == 1 else None)
print(f"rank {rank}: layers {cuts[rank]} to {cuts[rank + 1] - 1}")
dist.destroy_process_group()
