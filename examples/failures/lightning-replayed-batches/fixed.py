"""The same with a loader whose position is part of the checkpoint.

python fixed.py
"""

import lightning
import torch
from torch.utils.data import DataLoader, SequentialSampler

samples = torch.arange(8.0).unsqueeze(1)


class ResumableSampler(SequentialSampler):
    skip = 0

    def __iter__(self):
        return iter(range(self.skip, len(self.data_source)))


class ResumableLoader(DataLoader):
    made = resume_at = 0  # batches of this epoch

    def __iter__(self):
        self.made, self.resume_at = self.resume_at, 0
        self.sampler.skip = self.made * self.batch_size
        for batch in super().__iter__():
            self.made += 1
            yield batch

    def state_dict(self):
        return {"made": self.made}

    def load_state_dict(self, state):
        self.resume_at = state["made"]


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


def train(steps: int, checkpoint: str | None = None) -> lightning.Trainer:
    model, loader = Model(), ResumableLoader(samples, batch_size=2, sampler=ResumableSampler(samples))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=steps, enable_checkpointing=False, **quiet)
    trainer.fit(model, loader, ckpt_path=checkpoint, weights_only=True)
    print(f"trained on samples {model.seen}")
    return trainer


if __name__ == "__main__":
    train(steps=2).save_checkpoint("stopped.ckpt")
    train(steps=4, checkpoint="stopped.ckpt")
