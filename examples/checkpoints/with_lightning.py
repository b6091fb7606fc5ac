"""Let Lightning save, and resume on any number of processes.

    torchrun --standalone --nproc-per-node 2 with_lightning.py 3
    torchrun --standalone --nproc-per-node 4 with_lightning.py 6

The argument is the step to train to. The checkpoint is checkpoints/last.ckpt.
"""

import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def training_step(self, batch):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        if self.global_rank == 0:
            print(f"{self.trainer.world_size} processes, step {self.global_step + 1}: loss {loss.item():.6f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


lightning.seed_everything(0)
batches = DataLoader([(torch.randn(64, 8), torch.randn(64, 4))], batch_size=None)  # put your own data here
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_steps=int(sys.argv[1]),
    callbacks=ModelCheckpoint("checkpoints", save_last=True, every_n_train_steps=1),
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Line(), batches, ckpt_path="last")
