"""Lightning in a job with a name of its own, and a check that it has found all tasks.

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python fixed.py
"""

import os
import sys

import lightning
from lightning.pytorch.plugins.environments import SLURMEnvironment

os.environ["SLURM_JOB_NAME"] = "train"  # #SBATCH --job-name=train

nodes, tasks = int(os.environ["SLURM_NNODES"]), int(os.environ["SLURM_NTASKS"])
trainer = lightning.Trainer(accelerator="cpu", devices=tasks // nodes, num_nodes=nodes, strategy="ddp", logger=False)
found = SLURMEnvironment.detect()
if not found or trainer.world_size != tasks:
    sys.exit(f"error: Lightning trains with {trainer.world_size} processes, and Slurm started {tasks}")
print(f"task {os.environ['SLURM_PROCID']} of {tasks} is rank {trainer.global_rank} of {trainer.world_size}")
