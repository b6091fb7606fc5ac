"""A small network with Lightning: on one GPU, on all of a node, or on several nodes.

    python train.py --epochs 2
    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train.py --epochs 2
    sbatch single_gpu.sbatch

The program reads from Slurm how many nodes and processes there are; outside of a job it is one process.
"""

import argparse
import hashlib
import json
import os
import sys
import time
import zipfile
from datetime import timedelta
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

version = tuple(map(int, lightning.__version__.split(".")[:2]))
assert version >= (2, 6), f"needs Lightning 2.6 or newer, found {lightning.__version__}"

SEED = 0
TIMEOUT = timedelta(minutes=30)  # a process that waits longer for another ends with an error of NCCL or gloo
BASE_BATCH_SIZE = 32  # the batch for which --learning_rate is meant


class CloudData(lightning.LightningDataModule):
    """Points in 64 dimensions: each of ten classes is three clouds that overlap with others."""

    def __init__(self, batch_size, num_workers):
        super().__init__()
        self.options = {"batch_size": batch_size, "num_workers": num_workers}  # of each process
        self.options |= {"persistent_workers": num_workers > 0, "pin_memory": torch.cuda.is_available()}

    def setup(self, stage):  # noqa: ARG002 - Lightning gives it by this name
        """Make the same points on all ranks. A download belongs in `prepare_data`, which runs once on each node."""
        generator = torch.Generator().manual_seed(SEED)
        centres = 0.6 * torch.randn(3 * 10, 64, generator=generator)
        clouds = torch.randint(len(centres), (8000,), generator=generator)
        points = centres[clouds] + torch.randn(len(clouds), 64, generator=generator)
        self.train, self.validation = random_split(TensorDataset(points, clouds % 10), [7000, 1000], generator)

    def train_dataloader(self):
        return DataLoader(self.train, shuffle=True, **self.options)

    def val_dataloader(self):
        return DataLoader(self.validation, **self.options)


class MLP(lightning.LightningModule):
    """An MLP with two hidden layers, its loss and its optimizer."""

    def __init__(self, learning_rate, warmup_steps=0):
        super().__init__()
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, _):
        points, labels = batch
        loss = cross_entropy(self.layers(points), labels)
        self.log("train_loss", loss, on_epoch=True, on_step=False, batch_size=len(labels), sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        points, labels = batch
        outputs = self.layers(points)
        accuracy = (outputs.argmax(1) == labels).float().mean()
        metrics = {"val_loss": cross_entropy(outputs, labels), "val_accuracy": accuracy}
        self.log_dict(metrics, batch_size=len(labels), sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.learning_rate, momentum=0.9)
        steps = max(1, self.warmup_steps)  # 1: the whole rate from the first step
        warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / steps, total_iters=steps - 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm_up, "interval": "step"}}


def read_allocation():
    """Read `num_nodes` and `devices` from Slurm; a ValueError names the option that does not fit."""
    slurm = {name.removeprefix("SLURM_"): value for name, value in os.environ.items() if name.startswith("SLURM_")}
    if "JOB_ID" not in slurm:
        return 1, 1
    tasks = int(slurm.get("STEP_NUM_TASKS", 0))
    if tasks == 0 or tasks != int(slurm["NTASKS"]):
        raise ValueError(f"this is one process of a job, not started by srun; start all: srun python {sys.argv[0]}")
    nodes, layout = int(slurm["NNODES"]), slurm["STEP_TASKS_PER_NODE"]
    if "," in layout:  # 4,2 or 4(x3),2; where all nodes have the same number it is 4(x3)
        raise ValueError(f"the nodes run {layout} tasks; all need the same number: --ntasks-per-node=4")
    devices, asked = tasks // nodes, slurm.get("NTASKS_PER_NODE", "1" if tasks == 1 else "not given")
    if asked != str(devices):
        counted = f"--ntasks-per-node is {asked}, by which Lightning counts"
        hint = f"leave out --ntasks, and give --ntasks-per-node={devices} or as many as you want"
        raise ValueError(f"each node runs {devices} of {tasks} tasks, and {counted}; {hint}")
    allotted = int(slurm.get("GPUS_ON_NODE", 0))
    gpus = torch.cuda.device_count() or allotted
    if gpus and gpus != devices:
        hidden = "let each task see all GPUs of its node: --gres=gpu:4 or --gpus-per-node=4, not --gpus-per-task"
        hint = hidden if gpus < allotted else f"give each GPU its task: --ntasks-per-node={gpus}"
        raise ValueError(f"each node runs {devices} tasks, and each task sees {gpus} GPUs; {hint}")
    return nodes, devices


class WholeFiles(TorchCheckpointIO):
    """Write beside the checkpoint and rename: Lightning writes in $TMPDIR, and copies from there to another disk."""

    def save_checkpoint(self, checkpoint, path, storage_options=None):  # noqa: ARG002
        beside = Path(f"{path}.tmp")
        try:
            beside.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())  # on the disk before it gets its name
            beside.replace(path)
        except (OSError, RuntimeError) as error:  # torch makes a RuntimeError of a full disk
            why = "make room there (or is another job saving in it?), then submit the job again"
            raise SystemExit(f"error: cannot save {path}: {error!r}; {why}") from None

    def load_checkpoint(self, path, *arguments, **options):
        try:
            if damaged := zipfile.ZipFile(path).testzip():  # compares the checksums: torch.load does not
                raise ValueError(f"{damaged} has changed")
            return super().load_checkpoint(path, *arguments, **options)
        except Exception as error:  # torch raises many kinds
            raise SystemExit(f"error: {path} is damaged: delete it to start over ({error!r})") from None


class Report(Callback):
    """Print a line when a rank starts and ends, and for each epoch; keep the seconds of the epochs."""

    def on_fit_start(self, trainer, _):
        self.seconds = []
        host = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        backend = torch.distributed.get_backend() if torch.distributed.is_initialized() else "none"
        job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
        place = f"host={host} local_rank={trainer.local_rank} pid={os.getpid()} device={trainer.strategy.root_device}"
        how = f"backend={backend} framework=lightning-{lightning.__version__}{job} epochs={trainer.max_epochs}"
        print(f"rank {trainer.global_rank}/{trainer.world_size} start {place} {how}")

    def on_train_start(self, *_):
        self.start, self.made = time.perf_counter(), 0

    on_train_epoch_start = on_train_start  # both, because a resume within an epoch does not start one

    def on_train_batch_end(self, trainer, *_):
        if trainer.is_last_batch and torch.cuda.is_available():
            torch.cuda.synchronize()  # a GPU is told what to do, and does it later
        seconds = time.perf_counter() - self.start
        self.made += 1  # iterations of this epoch, in this start of the job
        self.throughput = self.made / trainer.num_training_batches * len(trainer.train_dataloader.dataset) / seconds
        self.log("samples/s", self.throughput, prog_bar=True, logger=False)
        if self.made == trainer.num_training_batches:
            self.seconds.append(seconds)

    def on_train_epoch_end(self, trainer, _):
        found = trainer.callback_metrics
        if trainer.is_global_zero and not trainer.progress_bar_callback:
            epoch = f"Epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            speed = f"{trainer.num_training_batches} iterations, {self.throughput:.0f} samples/s"
            losses = f"train_loss {found['train_loss']:.4f}, val_loss {found['val_loss']:.4f}"
            print(f"{epoch}: {speed}, {losses}, val_accuracy {found['val_accuracy']:.1%}")

    def on_fit_end(self, trainer, module):
        found = trainer.callback_metrics
        loss = f" loss={found['train_loss']:.4f}" if "train_loss" in found else ""  # none if nothing was left to train
        values = (value.cpu().numpy().tobytes() for value in module.state_dict().values())
        params = hashlib.sha256(b"".join(values)).hexdigest()[:12]
        print(f"rank {trainer.global_rank}/{trainer.world_size} end steps={trainer.global_step}{loss} params={params}")
        if trainer.is_global_zero:
            Path(trainer.default_root_dir, "epoch_seconds.json").write_text(json.dumps(self.seconds) + "\n")


def claim_folder(folder, configuration):
    """Return where this job writes; a ValueError says that `folder` holds runs of another configuration."""
    path = folder / "configuration.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        differing = [f"{name} {known.get(name)}" for name in configuration if known.get(name) != configuration[name]]
        if differing:
            raise ValueError(f"{folder} holds runs with {', '.join(differing)}; give another: --output_dir={folder}_2")
    elif os.environ.get("SLURM_PROCID", "0") == "0":
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f"configuration.{os.getpid()}"
        beside.write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)  # at once: the others find all of it or nothing
    return folder / os.environ.get("SLURM_JOB_ID", "local")


def read_settings():
    parser = argparse.ArgumentParser(description="Train a small network with Lightning.")
    parser.add_argument("--batch_size", type=int, default=BASE_BATCH_SIZE, help="of each process")
    parser.add_argument("--learning_rate", type=float, default=0.01, help=f"for a batch of {BASE_BATCH_SIZE}")
    parser.add_argument("--scale_learning_rate", action="store_true", help="raise it as the global batch grows")
    parser.add_argument("--warmup_steps", type=int, default=0, help="steps in which it grows to its value")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--num_workers", type=int, default=0, help="of each process, to load data")
    parser.add_argument("--output_dir", type=Path, help="of one configuration; by default such as outputs/2x4")
    settings = parser.parse_args()
    for name, least in {"batch_size": 1, "epochs": 1, "num_workers": 0, "learning_rate": 1e-9}.items():
        if not least <= getattr(settings, name) < float("inf"):  # not nan, either
            parser.error(f"argument --{name}: {getattr(settings, name)}: give a number from {least}")
    return settings


def run(settings, data, *callbacks, **options):
    """Train on what `data` loads; further callbacks and options go to the Trainer."""
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    on_gpu = torch.cuda.is_available()
    try:
        nodes, devices = read_allocation()
        output_dir = vars(settings).pop("output_dir") or Path("outputs", f"{nodes}x{devices}")
        folder = claim_folder(output_dir, {"nodes": nodes, "devices": devices, **vars(settings)})
    except (ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    if not on_gpu and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    lightning.seed_everything(SEED, verbose=False)  # the same first parameters on all ranks
    batch = settings.batch_size * nodes * devices  # of all processes together
    scale = batch / BASE_BATCH_SIZE if settings.scale_learning_rate else 1
    start = f"restart_{number}" if (number := os.environ.get("SLURM_RESTART_COUNT")) else ""
    trainer = lightning.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(timeout=TIMEOUT) if nodes * devices > 1 else "auto",
        plugins=[WholeFiles(), *([SLURMEnvironment(auto_requeue=False)] if "SLURM_JOB_ID" in os.environ else [])],
        max_epochs=settings.epochs,
        default_root_dir=folder,
        logger=[CSVLogger(folder, "", start), TensorBoardLogger(folder, "", "tensorboard")],
        callbacks=[Report(), ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False), *callbacks],
        num_sanity_val_steps=0,
        enable_progress_bar=sys.stderr.isatty(),
        enable_model_summary=False,
        **options,
    )
    if trainer.is_global_zero:
        print(f"Training on {nodes} x {devices} {'GPUs' if on_gpu else 'CPU processes'}, {batch} samples an iteration")
        if not on_gpu and "SLURM_GPUS_ON_NODE" in os.environ:
            print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")
    saved = folder / "checkpoints" / "last.ckpt"  # after each epoch, and where train_requeue.py was stopped
    trainer.fit(
        MLP(scale * settings.learning_rate, settings.warmup_steps),
        datamodule=data(settings.batch_size, settings.num_workers),
        ckpt_path=saved if number and saved.exists() else None,
        weights_only=True,  # otherwise, whoever can write the file can run commands as you
    )
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # ends the threads of gloo, which may abort a process


if __name__ == "__main__":
    run(read_settings(), CloudData)
