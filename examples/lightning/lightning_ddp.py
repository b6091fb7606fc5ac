"""DDP by Lightning, each process started by srun.

srunbook simulate --ntasks-per-node 2 -- python lightning_ddp.py
"""

import os

import lightning
from lightning.pytorch.plugins.environments import SLURMEnvironment
from same_model import EPOCHS, keep, leave, make_loader, make_model, make_optimizer
from torch.nn.functional import cross_entropy


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()
        self.losses = []

    def training_step(self, batch, _):
        points, labels = batch
        loss = cross_entropy(self.model(points), labels)
        self.losses.append(self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean").item())
        return loss

    def configure_optimizers(self):
        return make_optimizer(self.model)

    def train_dataloader(self):
        return make_loader(self.global_rank, self.trainer.world_size)


module = Module()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["SLURM_NTASKS_PER_NODE"]),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    strategy="ddp",
    max_epochs=EPOCHS,
    plugins=SLURMEnvironment(auto_requeue=False),  # or SIGUSR1 saves in this folder for whichever job is next
    use_distributed_sampler=False,  # the loader shares the samples out itself
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module)
keep(module.model, module.losses, trainer.global_rank)
leave()
