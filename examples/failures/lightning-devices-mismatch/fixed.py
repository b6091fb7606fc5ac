"""Lightning is told what Slurm started.

srunbook simulate --nodes 1 --ntasks-per-node 2 -- python fixed.py
"""

import os

import lightning
from lightning.pytorch.demos.boring_classes import BoringModel

trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["SLURM_NTASKS_PER_NODE"]),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    strategy="ddp",
    max_steps=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(BoringModel())
print(f"rank {trainer.global_rank} of {trainer.world_size} has made {trainer.global_step} steps")
