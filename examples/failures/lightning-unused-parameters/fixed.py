"""DDP looks for the parameters that a step does not use.

srunbook simulate --ntasks-per-node 2 -- python fixed.py
"""

import lightning
import torch
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.unused = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    strategy = "ddp_find_unused_parameters_true"  # better: freeze the layer, or delete it
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, max_epochs=1, enable_checkpointing=False, strategy=strategy, **quiet
    )
    trainer.fit(Model(), DataLoader(torch.ones(8, 1), batch_size=2))
    print(f"rank {trainer.global_rank}: {trainer.global_step} steps")
