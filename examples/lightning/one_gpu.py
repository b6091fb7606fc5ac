"""Train a small network with Lightning on one GPU, or on the CPU.

    python one_gpu.py

The trained model goes to checkpoints/.
"""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 10))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        self.print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss']:.6f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


def main():
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        max_epochs=5,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rank = f"rank {trainer.global_rank}/{trainer.world_size}"
    print(f"{rank} start host={os.uname().nodename} device={trainer.strategy.root_device}")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns, labels = torch.randn(10, 256), torch.randint(10, (2048,))
    dataset = TensorDataset(patterns[labels] + 3 * torch.randn(2048, 256), labels)
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, drop_last=True)

    trainer.fit(Classifier(), loader)
    print(f"{rank} end steps={trainer.global_step}")


if __name__ == "__main__":
    main()
