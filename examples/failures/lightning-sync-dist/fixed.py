"""The ranks log one metric of all data.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

import lightning
import torch
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def validation_step(self, batch, _):
        self.log("val_loss", batch.mean(), sync_dist=True)


if __name__ == "__main__":
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=2, **quiet)
    trainer.validate(Model(), DataLoader(torch.arange(8.0), batch_size=2), verbose=False)
    print(f"rank {trainer.global_rank}: val_loss {trainer.callback_metrics['val_loss'].item()}")
