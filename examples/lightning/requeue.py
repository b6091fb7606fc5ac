"""Train a small network with Lightning on all GPUs of all nodes, and continue after a time limit.

    srunbook simulate --ntasks-per-node 2 -- python requeue.py
    sbatch requeue.sbatch

After each epoch it is saved in checkpoints/requeue-NAME/, where NAME is the job's.
At Slurm's signal it stops after the epoch.
"""

import os
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

signals = []  # from Slurm: SIGUSR1 before the time limit, SIGTERM at a preemption
for number in (signal.SIGUSR1, signal.SIGTERM):  # before the slow imports, or it ends them
    signal.signal(number, lambda number, _: signals.append(number))

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

version = tuple(map(int, lightning.__version__.split(".")[:2]))
assert version >= (2, 6), f"needs Lightning 2.6 or newer, found {lightning.__version__}"

BATCH_SIZE = 64  # of all processes together
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINTS = f"checkpoints/requeue-{RUN}"  # delete it to start over


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


class WholeFiles(TorchCheckpointIO):
    def save_checkpoint(self, checkpoint, path, **_):
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with Path(f"{path}.tmp").open("wb") as file:  # Lightning would write in $TMPDIR, and copy to another disk
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())  # on the disk before it gets its name
            Path(file.name).replace(path)
        except (OSError, RuntimeError) as error:  # torch makes a RuntimeError of a full disk
            why = "make room there (or is another job saving in it?), then submit the job again"
            raise SystemExit(f"error: cannot save {path}: {error!r}; {why}") from None

    def load_checkpoint(self, path, *arguments, **options):
        if not zipfile.is_zipfile(path) or zipfile.ZipFile(path).testzip():  # compares checksums: torch.load does not
            raise SystemExit(f"error: {path} is damaged; delete it to start over")
        return super().load_checkpoint(path, *arguments, **options)


class StopAtSignal(lightning.Callback):
    stop = again = False

    def on_train_start(self, trainer, module):
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGUSR1))  # in place of Lightning's, which saves nothing
        if trainer.current_epoch:
            module.print(f"resumed before epoch {trainer.current_epoch}")

    def on_train_epoch_end(self, trainer, _):
        self.stop = trainer.strategy.reduce_boolean_decision(bool(signals), all=False)  # has any process heard it?
        if self.stop:
            self.again = trainer.strategy.reduce_boolean_decision(signal.SIGUSR1 in signals, all=False)
            trainer.should_stop = True


def main():
    lightning.seed_everything(0)
    stopper = StopAtSignal()
    trainer = lightning.Trainer(
        num_nodes=int(os.environ.get("SLURM_NNODES", 1)),
        devices=int(os.environ.get("SLURM_NTASKS", 1)) // int(os.environ.get("SLURM_NNODES", 1)),
        strategy="ddp",
        callbacks=[stopper, ModelCheckpoint(CHECKPOINTS, save_last=True)],
        plugins=[SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else None,
        default_root_dir=CHECKPOINTS,
        max_epochs=5,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.strategy.checkpoint_io = WholeFiles()
    rank = f"rank {trainer.global_rank}/{trainer.world_size}"
    share = max(1, BATCH_SIZE // trainer.world_size)
    print(f"{rank} start host={os.uname().nodename} device={trainer.strategy.root_device} batch={share}")
    if trainer.is_global_zero and "SLURM_GPUS_ON_NODE" in os.environ and not torch.cuda.is_available():
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    # Stand-in data: ten patterns under noise. Put your own dataset here.
    patterns, labels = torch.randn(10, 256), torch.randint(10, (2048,))
    dataset = TensorDataset(patterns[labels] + 3 * torch.randn(2048, 256), labels)
    loader = DataLoader(dataset, share, shuffle=True, drop_last=True)

    last = Path(CHECKPOINTS, "last.ckpt")  # not ckpt_path="last": it takes the newest of last*.ckpt, also your copies
    trainer.fit(Classifier(), loader, ckpt_path=last if last.exists() else None, weights_only=True)
    if not stopper.stop or trainer.current_epoch == trainer.max_epochs:
        print(f"{rank} end steps={trainer.global_step}")
    elif trainer.is_global_zero:
        print(f"stopped before epoch {trainer.current_epoch}")
        if not stopper.again:
            return  # SIGTERM alone may come from scancel
        job = os.environ.get("SLURM_JOB_ID")
        if "SLURM_ARRAY_TASK_ID" in os.environ:  # this member alone, not the whole array
            job = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}".format_map(os.environ)
        if job and shutil.which("scontrol"):
            for number in (signal.SIGUSR1, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # a second one would end scontrol, which inherits this
            subprocess.run(["scontrol", "requeue", job], check=True)
        else:  # outside of Slurm, or in a container without its commands
            print("saved; to continue, submit the job again")


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()
