"""A training that is stopped within an epoch, and goes on with the usual loader.

python broken.py
"""

import lightning
import torch
from torch.utils.data import DataLoader

samples = torch.arange(8.0).unsqueeze(1)


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, _):
        self.seen += batch.flatten().int().tolist()
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(loader: DataLoader, steps: int, checkpoint: str | None = None) -> lightning.Trainer:
    model = Model()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=steps, enable_checkpointing=False, **quiet)
    trainer.fit(model, loader, ckpt_path=checkpoint, weights_only=True)
    print(f"trained on samples {model.seen}")
    return trainer


if __name__ == "__main__":
    train(DataLoader(samples, batch_size=2), steps=2).save_checkpoint("stopped.ckpt")
    train(DataLoader(samples, batch_size=2), steps=4, checkpoint="stopped.ckpt")
