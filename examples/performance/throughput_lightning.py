"""Train a small network with Lightning on all GPUs of all nodes, or on CPUs, and print how fast that was.

    srunbook simulate --ntasks-per-node 2 -- python throughput_lightning.py
    sbatch ddp.sbatch throughput_lightning.py

The trained model goes to lightning-JOB/checkpoints/, where JOB is the job's number.
"""

import os

import lightning
import torch
from lightning.fabric.utilities.throughput import measure_flops
from lightning.pytorch.callbacks import ThroughputMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.environments import SLURMEnvironment
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64  # of all processes together


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 10))
        self.flops_per_batch = 0

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        self.print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss']:.6f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


def flops(share):
    """Return the operations of a step of one rank."""
    with torch.device("meta"):  # shapes without memory
        layers = Classifier().layers
        return measure_flops(layers, lambda: layers(torch.empty(share, 256)), torch.sum)


def main():
    lightning.seed_everything(0)
    folder = "lightning-" + os.environ.get("SLURM_JOB_ID", "run")  # of this job alone
    trainer = lightning.Trainer(
        num_nodes=int(os.environ.get("SLURM_NNODES", 1)),
        devices=int(os.environ.get("SLURM_NTASKS", 1)) // int(os.environ.get("SLURM_NNODES", 1)),
        strategy="ddp",
        plugins=[SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else None,
        default_root_dir=folder,
        max_epochs=5,
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]), window_size=100)],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rank = f"rank {trainer.global_rank}/{trainer.world_size}"
    share = max(1, BATCH_SIZE // trainer.world_size)
    print(f"{rank} start host={os.uname().nodename} device={trainer.strategy.root_device} batch={share}")
    if trainer.is_global_zero and "SLURM_GPUS_ON_NODE" in os.environ and not torch.cuda.is_available():
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns, labels = torch.randn(10, 256), torch.randint(10, (2048,))
    dataset = TensorDataset(patterns[labels] + 3 * torch.randn(2048, 256), labels)
    loader = DataLoader(dataset, share, shuffle=True, drop_last=True)

    model = Classifier()
    model.flops_per_batch = flops(share)
    trainer.fit(model, loader)
    if trainer.is_global_zero:
        speed = trainer.logged_metrics  # of the last 100 steps
        each, mfu = speed["train/device/samples_per_sec"], speed.get("train/device/mfu")
        print(f"{speed['train/samples_per_sec']:.0f} images/s, {each:.0f} images/s on each device")
        each = speed["train/device/flops_per_sec"] / 1e9
        print(f"{each:.2f} GFLOP/s on each device" + (f", MFU {mfu:.1%}" if mfu else ""))
    print(f"{rank} end steps={trainer.global_step}")


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()
