"""Without ckpt_path, Lightning takes the checkpoint of a requeue where there is one.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python fixed.py
"""

import lightning
import torch
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def on_train_start(self):
        print(f"starts at step {self.global_step}")

    def training_step(self, batch, _):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(steps: int) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=steps, enable_checkpointing=False, **quiet)
    trainer.fit(Model(), DataLoader(torch.ones(8, 1), batch_size=2), weights_only=True)
    return trainer


if __name__ == "__main__":
    train(steps=2).save_checkpoint("hpc_ckpt_1.ckpt")  # as Lightning does at the signal before the time limit
    train(steps=4)  # the same script, after the requeue
