"""Lightning is told another number of devices than Slurm started tasks.

srunbook simulate --nodes 1 --ntasks-per-node 2 -- python broken.py
"""

import lightning
from lightning.pytorch.demos.boring_classes import BoringModel

trainer = lightning.Trainer(
    accelerator="cpu", devices=4, strategy="ddp", max_steps=2, logger=False, enable_checkpointing=False
)
print("the trainer is made, and nothing is wrong yet")
trainer.fit(BoringModel())
