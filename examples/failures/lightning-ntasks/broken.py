"""Lightning in a job that was asked for with --ntasks alone.

srunbook simulate --nodes 2 --ntasks-per-node 2 -- python broken.py
"""

import os

import lightning

# What `#SBATCH --ntasks=4` without --ntasks-per-node leaves out.
del os.environ["SLURM_NTASKS_PER_NODE"]

trainer = lightning.Trainer(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp", logger=False)
print(f"rank {trainer.global_rank} of {trainer.world_size}")
