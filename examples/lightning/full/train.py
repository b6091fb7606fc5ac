"""A small network with Lightning: on one GPU, on all of a node, or on several nodes.

    python train.py --epochs 2
    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train.py --epochs 2
    sbatch single_gpu.sbatch

You should now see a line for each epoch, and an accuracy that grows.
How many nodes and processes there are, the program reads from Slurm; outside of a job it is one process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = 0
TIMEOUT = timedelta(minutes=30)  # a process that waits longer for another ends with an error of NCCL or gloo
BASE_BATCH_SIZE = 32  # the batch for which --learning_rate is meant
FEATURES, CLASSES, CLOUDS = 64, 10, 3
TRAIN, VALIDATION = 7000, 1000


# The data ------------------------------------------------------------------------


class CloudData(lightning.LightningDataModule):
    """Points in 64 dimensions: each of ten classes is three clouds that overlap with others."""

    def __init__(self, batch_size: int, num_workers: int) -> None:
        super().__init__()
        self.options = {"batch_size": batch_size, "num_workers": num_workers}  # of each process
        self.options |= {"persistent_workers": num_workers > 0, "pin_memory": torch.cuda.is_available()}

    def setup(self, stage: str) -> None:  # noqa: ARG002 - Lightning gives it by this name
        """Make the same points on all ranks.

        A download belongs into `prepare_data`, which runs on one rank of each node.
        """
        generator = torch.Generator().manual_seed(SEED)
        centres = 0.6 * torch.randn(CLASSES * CLOUDS, FEATURES, generator=generator)
        clouds = torch.randint(len(centres), (TRAIN + VALIDATION,), generator=generator)
        points = centres[clouds] + torch.randn(len(clouds), FEATURES, generator=generator)
        whole = TensorDataset(points, clouds % CLASSES)
        self.train, self.validation = random_split(whole, [TRAIN, VALIDATION], generator)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train, shuffle=True, **self.options)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.validation, **self.options)


# The model -----------------------------------------------------------------------


class MLP(lightning.LightningModule):
    """An MLP with two hidden layers, its loss and its optimizer."""

    def __init__(self, learning_rate: float, warmup_steps: int = 0) -> None:
        super().__init__()
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.layers = nn.Sequential(
            nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        points, labels = batch
        loss = cross_entropy(self.layers(points), labels)
        self.log("train_loss", loss, on_epoch=True, on_step=False, batch_size=len(labels), sync_dist=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        points, labels = batch
        outputs = self.layers(points)
        accuracy = (outputs.argmax(1) == labels).float().mean()
        metrics = {"val_loss": cross_entropy(outputs, labels), "val_accuracy": accuracy}
        self.log_dict(metrics, batch_size=len(labels), sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.learning_rate, momentum=0.9)
        if not self.warmup_steps:
            return {"optimizer": optimizer}
        warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / self.warmup_steps, total_iters=self.warmup_steps - 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm_up, "interval": "step"}}


# The processes -------------------------------------------------------------------


def read_allocation() -> tuple[int, int]:
    """Read from Slurm what Lightning calls `num_nodes` and `devices`, and check that all of it agrees.

    Raises:
        ValueError: Some GPU has no task of its own, or Lightning would not see the tasks.
    """
    slurm = {name.removeprefix("SLURM_"): value for name, value in os.environ.items() if name.startswith("SLURM_")}
    if "JOB_ID" not in slurm:
        return 1, 1
    if slurm.get("JOB_NAME") in ("bash", "interactive"):
        raise ValueError(
            f"the job is named {slurm['JOB_NAME']!r}, and in such a job Lightning does not look at Slurm; "
            "give another name: --job-name=train"
        )
    tasks = int(slurm.get("STEP_NUM_TASKS", 0))
    if tasks == 0 or tasks != int(slurm["NTASKS"]):
        raise ValueError(f"this is one process of a job, not started by srun; start all: srun python {sys.argv[0]}")
    nodes, layout = int(slurm["NNODES"]), slurm["STEP_TASKS_PER_NODE"]
    if not re.fullmatch(r"\d+(\(x\d+\))?", layout):
        raise ValueError(
            f"Slurm runs {layout} tasks on the nodes; each node needs as many as the others: --ntasks-per-node=4"
        )
    devices, asked = tasks // nodes, slurm.get("NTASKS_PER_NODE", "not given")
    if tasks > 1 and asked != str(devices):
        raise ValueError(
            f"Slurm runs {devices} tasks on each of {nodes} nodes, and --ntasks-per-node is {asked}, "
            f"by which Lightning counts; give --ntasks-per-node={devices} and no --ntasks"
        )
    allotted = int(slurm.get("GPUS_ON_NODE", 0))
    gpus = torch.cuda.device_count() or allotted
    if gpus and gpus != devices:
        hint = f"give each GPU its task: --ntasks-per-node={gpus}"
        if gpus < allotted:
            hint = "let each task see all GPUs of its node: --gres=gpu:4 or --gpus-per-node=4, not --gpus-per-task"
        raise ValueError(f"{devices} tasks run on {host()}, and each sees {gpus} GPUs; {hint}")
    return nodes, devices


def host() -> str:
    """Return the name of this node."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


class RankLines(Callback):
    """Print who this process is when all have met, and what it has in the end."""

    def on_fit_start(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        backend = dist.get_backend() if dist.is_initialized() else "none"
        job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
        print(
            f"rank {trainer.global_rank}/{trainer.world_size} start host={host()} local_rank={trainer.local_rank} "
            f"pid={os.getpid()} device={trainer.strategy.root_device} backend={backend} "
            f"framework=lightning-{lightning.__version__}{job} epochs={trainer.max_epochs}"
        )

    def on_fit_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        found, digest = trainer.callback_metrics, hashlib.sha256()
        for value in module.state_dict().values():
            digest.update(value.cpu().numpy().tobytes())
        loss = f" loss={found['train_loss']:.4f}" if "train_loss" in found else ""  # none if nothing was left to train
        print(
            f"rank {trainer.global_rank}/{trainer.world_size} end steps={trainer.global_step}{loss} "
            f"params={digest.hexdigest()[:12]}"
        )


# What you see and what stays -----------------------------------------------------


class Progress(Callback):
    """Print a line for each epoch in a log, show the throughput in the bar of a terminal, and keep the seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: list[float] = []

    def on_train_start(self, *_: Any) -> None:
        self.start, self.made = time.perf_counter(), 0

    on_train_epoch_start = on_train_start  # both, because a resume within an epoch does not start one

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.is_last_batch and torch.cuda.is_available():
            torch.cuda.synchronize()  # a GPU is told what to do, and does it later
        seconds = time.perf_counter() - self.start
        self.made += 1  # iterations of this epoch, in this start of the job
        self.throughput = self.made / trainer.num_training_batches * len(trainer.train_dataloader.dataset) / seconds
        self.log("samples/s", self.throughput, prog_bar=True, logger=False)
        if self.made == trainer.num_training_batches:
            self.seconds.append(seconds)

    def on_train_epoch_end(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        found = trainer.callback_metrics
        if trainer.is_global_zero and not trainer.progress_bar_callback:
            print(
                f"Epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: {trainer.num_training_batches} iterations, "
                f"{self.throughput:.0f} samples/s, train_loss {found['train_loss']:.4f}, "
                f"val_loss {found['val_loss']:.4f}, val_accuracy {found['val_accuracy']:.1%}"
            )

    def on_fit_end(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        if trainer.is_global_zero:
            (self.folder / "epoch_seconds.json").write_text(json.dumps(self.seconds) + "\n", encoding="utf-8")


def claim_folder(folder: Path, configuration: dict[str, Any]) -> Path:
    """Make `folder` that of one configuration; return where this run of it writes.

    Raises:
        ValueError: The folder holds runs of another configuration.
    """
    path = folder / "configuration.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        differing = [f"{name} {known.get(name)}" for name in configuration if known.get(name) != configuration[name]]
        if differing:
            raise ValueError(
                f"{folder} holds runs with {', '.join(differing)}; "
                f"for another configuration give another folder: --output_dir={folder}_2"
            )
    elif os.environ.get("SLURM_PROCID", "0") == "0":
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f"configuration.{os.getpid()}"
        beside.write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)  # at once: the others find all of it or nothing
    return folder / os.environ.get("SLURM_JOB_ID", "local")


def read_settings() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train a small network with Lightning.")
    parser.add_argument("--batch_size", type=int, default=BASE_BATCH_SIZE, help="of each process")
    parser.add_argument("--learning_rate", type=float, default=0.01, help=f"for a batch of {BASE_BATCH_SIZE}")
    parser.add_argument("--scale_learning_rate", action="store_true", help="raise it as the global batch grows")
    parser.add_argument("--warmup_steps", type=int, default=0, help="steps in which it grows to its value")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--num_workers", type=int, default=0, help="of each process, to load data")
    parser.add_argument("--device", choices=("auto", "cuda"), default="auto", help="cuda: end unless there is a GPU")
    parser.add_argument("--output_dir", type=Path, help="of one configuration; by default such as outputs/2x4")
    settings = parser.parse_args()
    for name, least in {"batch_size": 1, "epochs": 1, "warmup_steps": 0, "num_workers": 0}.items():
        if getattr(settings, name) < least:
            parser.error(f"argument --{name}: {getattr(settings, name)}: give a whole number from {least}")
    if not 0 < settings.learning_rate < float("inf"):
        parser.error(f"argument --learning_rate: {settings.learning_rate}: give a number above 0, such as 0.01")
    return settings


def run(settings: argparse.Namespace, data: type[CloudData], *callbacks: Callback, **options: Any) -> None:
    """Train on what `data` loads; further callbacks and options go to the Trainer."""
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    on_gpu = torch.cuda.is_available()
    try:
        nodes, devices = read_allocation()
        if settings.device == "cuda" and not on_gpu:
            raise ValueError("--device cuda, and PyTorch sees no GPU: is it a build for CPUs, or the driver too old?")
        configuration = {"nodes": nodes, "devices": devices, **vars(settings)}
        del configuration["output_dir"], configuration["device"]
        folder = claim_folder(settings.output_dir or Path("outputs", f"{nodes}x{devices}"), configuration)
    except (ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    if not on_gpu and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)

    lightning.seed_everything(SEED, verbose=False)  # the same first parameters on all ranks
    world, learning_rate = nodes * devices, settings.learning_rate
    if settings.scale_learning_rate:
        learning_rate *= settings.batch_size * world / BASE_BATCH_SIZE
    start = f"restart_{number}" if (number := os.environ.get("SLURM_RESTART_COUNT")) else ""
    last = ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False)
    trainer = lightning.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(timeout=TIMEOUT) if world > 1 else "auto",
        max_epochs=settings.epochs,
        logger=[CSVLogger(folder, "", start), TensorBoardLogger(folder, "", "tensorboard")],
        callbacks=[RankLines(), Progress(folder), last, *callbacks],
        num_sanity_val_steps=0,
        enable_progress_bar=sys.stderr.isatty(),
        enable_model_summary=False,
        **options,
    )
    if trainer.is_global_zero:
        kind = "GPUs" if on_gpu else "CPU processes"
        print(f"Training on {nodes} x {devices} {kind}, {settings.batch_size * world} samples an iteration")
        if not on_gpu and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
            print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")
    saved = folder / "checkpoints" / "last.ckpt"  # after each epoch, and where train_requeue.py was stopped
    trainer.fit(
        MLP(learning_rate, settings.warmup_steps),
        datamodule=data(settings.batch_size, settings.num_workers),
        ckpt_path=saved if number and saved.exists() else None,
        weights_only=True,  # otherwise, whoever can write the file can run commands as you
    )
    if dist.is_initialized():
        dist.destroy_process_group()  # ends the threads of gloo, which may abort a process that leaves them


def main() -> None:
    run(read_settings(), CloudData)


if __name__ == "__main__":
    main()
