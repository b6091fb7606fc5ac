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
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, random_split

SEED = 0
STOPPED = "stopped.ckpt"  # where train_requeue.py goes on
BASE_BATCH_SIZE = 32  # the batch for which --learning_rate is meant
FEATURES, CLASSES, CLOUDS = 64, 10, 3
TRAIN, VALIDATION = 7000, 1000


# The data ------------------------------------------------------------------------


class CloudData(lightning.LightningDataModule):
    """Points in 64 dimensions: each of ten classes is three clouds that overlap with others."""

    def __init__(self, batch_size: int, num_workers: int) -> None:
        super().__init__()
        self.options = {
            "batch_size": batch_size,  # of each process
            "num_workers": num_workers,
            "persistent_workers": num_workers > 0,
            "pin_memory": torch.cuda.is_available(),
        }

    def setup(self, stage: str) -> None:  # noqa: ARG002 - Lightning gives it by this name
        """Makes the same points on all ranks.

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
    """Two hidden layers, and how they are trained."""

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
        metrics = {
            "val_loss": cross_entropy(outputs, labels),
            "val_accuracy": (outputs.argmax(1) == labels).float().mean(),
        }
        self.log_dict(metrics, batch_size=len(labels), sync_dist=True)  # the mean over all ranks

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.learning_rate, momentum=0.9)
        if not self.warmup_steps:
            return {"optimizer": optimizer}
        warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / self.warmup_steps, total_iters=self.warmup_steps - 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm_up, "interval": "step"}}


# The processes -------------------------------------------------------------------


def host() -> str:
    """The name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def read_allocation() -> tuple[int, int]:
    """Reads from Slurm what Lightning calls `num_nodes` and `devices`, and checks that all of it agrees.

    Raises:
        ValueError: The tasks are not such that each GPU of each node has one.
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
    devices = tasks // nodes
    asked = slurm.get("NTASKS_PER_NODE")
    if tasks > 1 and asked != str(devices):
        raise ValueError(
            f"Slurm runs {devices} tasks on each of {nodes} nodes, and --ntasks-per-node is {asked or 'not given'}, "
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


def say(line: str) -> None:
    """Prints a line in one piece: all processes write to one log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fail(problem: Exception) -> NoReturn:
    """Ends before the training has begun."""
    print(f"error: {problem}", file=sys.stderr, flush=True)
    sys.exit(2)


def leave(status: int) -> NoReturn:
    """Ends this process when all have come here.

    Not by the end of the program: a thread of gloo may still be about to free a tensor,
    and aborts the process when Python has already begun to clean up.
    """
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class RankLines(Callback):
    """Says who this process is, when all have met, and what it has in the end."""

    def on_fit_start(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        backend = dist.get_backend() if dist.is_initialized() else "none"
        job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
        say(
            f"rank {trainer.global_rank}/{trainer.world_size} start host={host()} local_rank={trainer.local_rank} "
            f"pid={os.getpid()} device={trainer.strategy.root_device} backend={backend} "
            f"framework=lightning-{lightning.__version__}{job} epochs={trainer.max_epochs}"
        )

    def on_fit_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        digest = hashlib.sha256()
        for value in module.state_dict().values():
            digest.update(value.cpu().numpy().tobytes())
        say(
            f"rank {trainer.global_rank}/{trainer.world_size} end steps={trainer.global_step} "
            f"loss={trainer.callback_metrics['train_loss']:.4f} params={digest.hexdigest()[:12]}"
        )


# What you see and what stays -----------------------------------------------------


class Progress(TQDMProgressBar):
    """A bar with the throughput on a terminal; a line for each epoch in a log.

    Args:
        folder: Where rank 0 writes the seconds of each epoch at the end.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.seconds: list[float] = []
        self.throughput = ""
        self.made = 0  # iterations of this epoch, in this start of the job
        if not sys.stderr.isatty():
            self.disable()

    def get_metrics(self, *arguments: Any) -> dict[str, Any]:
        metrics = super().get_metrics(*arguments)
        metrics.pop("v_num", None)
        return metrics | {"throughput": self.throughput}

    def on_train_start(self, *arguments: Any) -> None:
        super().on_train_start(*arguments)
        self.start = time.perf_counter()  # where it goes on within an epoch, none starts

    def on_train_epoch_start(self, *arguments: Any) -> None:
        super().on_train_epoch_start(*arguments)
        self.start, self.made = time.perf_counter(), 0

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if trainer.is_last_batch and torch.cuda.is_available():
            torch.cuda.synchronize()  # a GPU is told what to do, and does it later
        seconds = time.perf_counter() - self.start
        self.made += 1
        part = self.made / trainer.num_training_batches
        self.throughput = f"{part * TRAIN / seconds:.0f} samples/s"  # of all processes together
        if part == 1:
            self.seconds.append(seconds)
        super().on_train_batch_end(trainer, module, outputs, batch, index)

    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        super().on_train_epoch_end(trainer, module)
        found = trainer.callback_metrics
        if trainer.is_global_zero and self.is_disabled:
            say(
                f"Epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: {trainer.num_training_batches} iterations, "
                f"{self.throughput}, train_loss {found['train_loss']:.4f}, val_loss {found['val_loss']:.4f}, "
                f"val_accuracy {found['val_accuracy']:.1%}"
            )

    def on_fit_end(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        if trainer.is_global_zero:
            (self.folder / "epoch_seconds.json").write_text(json.dumps(self.seconds) + "\n", encoding="utf-8")


def claim_folder(folder: Path, configuration: dict[str, Any]) -> Path:
    """Makes `folder` that of one configuration; returns where this run of it writes.

    Raises:
        ValueError: There are runs of another configuration.
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


def positive(text: str) -> float:
    """Reads a number above 0."""
    try:
        if 0 < float(text) < float("inf"):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: give a number above 0, such as 0.01")


def whole(text: str) -> int:
    """Reads a whole number from 1."""
    if not re.fullmatch("[0-9]*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text}: give a whole number from 1")
    return int(text)


def none_or_more(text: str) -> int:
    """Reads a whole number from 0."""
    return 0 if text == "0" else whole(text)


def read_settings() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Train a small network with Lightning.")
    parser.add_argument("--batch_size", type=whole, default=BASE_BATCH_SIZE, help="of each process")
    parser.add_argument("--learning_rate", type=positive, default=0.01, help=f"for a batch of {BASE_BATCH_SIZE}")
    parser.add_argument("--scale_learning_rate", action="store_true", help="raise it as the global batch grows")
    parser.add_argument("--warmup_steps", type=none_or_more, default=0, help="steps in which it grows to its value")
    parser.add_argument("--epochs", type=whole, default=50)
    parser.add_argument("--num_workers", type=none_or_more, default=0, help="of each process, to load data")
    parser.add_argument("--output_dir", type=Path, help="of one configuration; by default such as outputs/2x4")
    return parser.parse_args()


def run(settings: argparse.Namespace, data: type[CloudData], *callbacks: Callback, **options: Any) -> None:
    """Trains.

    Args:
        settings: What the command line says.
        data: Makes the loaders.
        callbacks: Further ones.
        options: Further arguments of the Trainer.
    """
    try:
        nodes, devices = read_allocation()
        configuration = {"nodes": nodes, "devices": devices, **vars(settings)}
        del configuration["output_dir"]
        folder = claim_folder(settings.output_dir or Path("outputs", f"{nodes}x{devices}"), configuration)
    except (ValueError, OSError) as problem:
        fail(problem)
    on_gpu = torch.cuda.is_available()
    if not on_gpu and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)

    lightning.seed_everything(SEED, verbose=False)  # the same first parameters on all ranks
    world = nodes * devices
    learning_rate = settings.learning_rate
    if settings.scale_learning_rate:
        learning_rate *= settings.batch_size * world / BASE_BATCH_SIZE
    start = f"restart_{number}" if (number := os.environ.get("SLURM_RESTART_COUNT")) else ""
    last = ModelCheckpoint(folder / "checkpoints", "last", enable_version_counter=False)
    trainer = lightning.Trainer(
        accelerator="gpu" if on_gpu else "cpu",
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if world > 1 else "auto",
        max_epochs=settings.epochs,
        logger=[CSVLogger(folder, "", start), TensorBoardLogger(folder, "", "tensorboard")],
        callbacks=[RankLines(), Progress(folder), last, *callbacks],
        num_sanity_val_steps=0,
        enable_model_summary=False,
        **options,
    )
    if trainer.is_global_zero:
        kind = "GPUs" if on_gpu else "CPU processes"
        say(f"Training on {nodes} x {devices} {kind}, {settings.batch_size * world} samples an iteration")
    stopped = folder / "checkpoints" / STOPPED
    trainer.fit(
        MLP(learning_rate, settings.warmup_steps),
        datamodule=data(settings.batch_size, settings.num_workers),
        ckpt_path=stopped if stopped.exists() else None,
        weights_only=True,  # otherwise, whoever can write the file can run commands as you
    )
    leave(0)


def main() -> None:
    run(read_settings(), CloudData)


if __name__ == "__main__":
    main()
