"""Train a small network with Lightning on all GPUs of all nodes, or on CPUs, and profile ten steps on each rank.

    srunbook simulate --ntasks-per-node 2 -- python profiled_lightning.py
    sbatch ddp.sbatch profiled_lightning.py

The trained model goes to lightning-JOB/checkpoints/, and the traces to trace-JOB/, where JOB is the job's number.
"""

import os
from pathlib import Path

import lightning
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from torch import nn
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 64  # of all processes together


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


class Trace(lightning.Callback):
    def on_train_start(self, trainer, _):
        folder = Path(f"trace-{os.environ.get('SLURM_JOB_ID', 'local')}")
        folder.mkdir(exist_ok=True)

        def write(profiler):
            profiler.export_chrome_trace(f"{folder}/rank-{trainer.global_rank}.json")

        plan = schedule(wait=10, warmup=5, active=10, repeat=1)  # steps
        self.profiler = profile(schedule=plan, on_trace_ready=write, record_shapes=True)
        self.profiler.start()

    def on_train_batch_end(self, *_):
        self.profiler.step()

    def on_train_end(self, *_):
        self.profiler.stop()


def main():
    lightning.seed_everything(0)
    trainer = lightning.Trainer(
        num_nodes=int(os.environ.get("SLURM_NNODES", 1)),
        devices=int(os.environ.get("SLURM_NTASKS", 1)) // int(os.environ.get("SLURM_NNODES", 1)),
        strategy="ddp",
        plugins=[SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else None,
        default_root_dir="lightning-" + os.environ.get("SLURM_JOB_ID", "run"),  # of this job alone
        max_epochs=5,
        callbacks=[Trace()],
        logger=False,
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

    trainer.fit(Classifier(), loader)
    print(f"{rank} end steps={trainer.global_step}")


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()
