"""The first start of a job asks for the checkpoint that a requeue would have written.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

import lightning
import torch
from torch.utils.data import DataLoader


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=2, **quiet)
trainer.fit(Model(), DataLoader(torch.ones(8, 1), batch_size=2), ckpt_path="hpc")
