"""Train a small network with Lightning on all GPUs of all nodes, and continue after a time limit.

    srunbook simulate --ntasks-per-node 2 -- python requeue.py
    sbatch requeue.sbatch

After each epoch, the training is saved in checkpoints/last.ckpt. At Slurm's signal it stops after the epoch.
"""

import os
import signal
import subprocess

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

BATCH_SIZE = 64  # of all processes together


class Shuffled(RandomSampler):
    def set_epoch(self, epoch):  # a new order each epoch, the same in each run
        self.generator = torch.Generator().manual_seed(epoch)


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


class Requeue(lightning.Callback):
    """At SIGUSR1, which Slurm sends before the time limit, end the epoch, stop, and requeue the job."""

    def __init__(self):
        self.signals, self.stop = [], False
        signal.signal(signal.SIGUSR1, lambda number, _: self.signals.append(number))

    def on_train_start(self, trainer, module):
        if trainer.current_epoch:
            module.print(f"resumed before epoch {trainer.current_epoch}")

    def on_train_epoch_end(self, trainer, _):
        # The signal reaches the processes at different times: all stop once one of them has it.
        self.stop = trainer.strategy.reduce_boolean_decision(len(self.signals) > 0, all=False)
        if self.stop:
            trainer.should_stop = True

    def on_fit_end(self, trainer, module):
        if self.stop and trainer.current_epoch < trainer.max_epochs:
            module.print(f"stopped before epoch {trainer.current_epoch}")
            if trainer.is_global_zero and "SLURM_JOB_ID" in os.environ:
                subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)


def main():
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        num_nodes=int(os.environ.get("SLURM_NNODES", 1)),
        devices=int(os.environ.get("SLURM_NTASKS_PER_NODE", 1)),
        strategy="ddp",
        callbacks=[Requeue(), ModelCheckpoint("checkpoints", save_last=True)],
        max_epochs=5,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rank, world_size, device = trainer.global_rank, trainer.world_size, trainer.strategy.root_device
    share = max(1, round(BATCH_SIZE / world_size))
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0:
        print(f"each step: {world_size} processes x {share} samples = {world_size * share}")
        if device.type == "cpu" and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
            print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns, labels = torch.randn(10, 256), torch.randint(10, (2048,))
    dataset = TensorDataset(patterns[labels] + 3 * torch.randn(2048, 256), labels)
    loader = DataLoader(dataset, share, sampler=Shuffled(dataset), drop_last=True)

    trainer.fit(Classifier(), loader, ckpt_path="last", weights_only=True)


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()
