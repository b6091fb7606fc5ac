"""Data-parallel training with DDP, on any number of nodes and processes.

    torchrun --standalone train_distributed.py                     # one process
    torchrun --standalone --nproc-per-node 2 train_distributed.py  # two
    sbatch run_distributed.sbatch                                  # several nodes

You should now see a line for each epoch, and an accuracy above 97% at the end.
The losses are those of one process: the processes share one global batch.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from image_data import DATASETS
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

SEED = 0


class SimpleConvNet(nn.Module):
    """Two convolutions and a linear layer.

    No dropout and no batch norm: with them, other layouts would give other numbers.
    """

    def __init__(self, channels: int, size: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (size // 2) ** 2, classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


# The processes -------------------------------------------------------------------


def setup_distributed(timeout: float) -> torch.device:
    """Joins this process to the others; returns the device that it computes on."""
    if "RANK" not in os.environ:
        print(
            "error: RANK is not set. Start me with torchrun, as in: "
            f"torchrun --standalone --nproc-per-node 2 {sys.argv[0]}",
            file=sys.stderr,
        )
        sys.exit(2)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(seconds=timeout),  # to wait for a lost process
    )
    return device


@contextmanager
def one_voice() -> Iterator[None]:
    """Ends all processes when one has a problem, and lets only one of them say it.

    A process that ended alone would leave the others waiting for it.
    """
    problem = None
    try:
        yield
    except (ValueError, OSError) as error:
        problem = str(error)
    problems: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    speaker = next((rank for rank, found in enumerate(problems) if found), None)
    if speaker is None:
        return
    if dist.get_rank() == speaker:
        print(f"error: {problem}", file=sys.stderr, flush=True)
    dist.barrier()  # when one has ended, torchrun ends the others: speak before
    dist.destroy_process_group()
    sys.exit(2)


def from_rank_0(function: Callable[[], Any]) -> Any:
    """Lets rank 0 do something while the others wait; all get what it returned."""
    box = [None]
    with one_voice():
        if dist.get_rank() == 0:
            box = [function()]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def host() -> str:
    """The name of this node."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def check_world() -> int:
    """Checks that the processes are what Slurm allotted; returns the number of nodes."""
    hosts = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, host())
    nodes, here = len(set(hosts)), hosts.count(host())
    with one_voice():
        allotted = int(os.environ.get("SLURM_NNODES", nodes))
        if nodes != allotted:
            raise ValueError(
                f"{len(hosts)} processes run on {nodes} nodes, but Slurm allotted {allotted}; "
                "start one torchrun on each of them: srun --ntasks-per-node=1"
            )
        gpus = int(os.environ.get("SLURM_GPUS_ON_NODE", 0))
        allotted = gpus or int(os.environ["LOCAL_WORLD_SIZE"])
        if here != allotted:
            raise ValueError(
                f"{here} processes run on {host()}, but Slurm allotted {allotted}; "
                f"give its one torchrun --nproc-per-node={allotted}"
            )
    return nodes


def say(line: str) -> None:
    """Prints a line in one piece: all processes of a node write to one log."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def start_record(device: torch.device) -> None:
    """Says who this process is."""
    line = {
        "event": "start",
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "local_rank": int(os.environ["LOCAL_RANK"]),
        "host": host(),
        "pid": os.getpid(),
        "backend": dist.get_backend(),
        "device": device.type,
        "framework": f"torch {torch.__version__}",
        "job": os.environ.get("SLURM_JOB_ID"),
    }
    say("record " + json.dumps(line))


def end_record(model: nn.Module, steps: int) -> None:
    """Says how many steps this process made, and gives a fingerprint of its parameters."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().numpy().tobytes())
    line = {"event": "end", "rank": dist.get_rank(), "steps": steps}
    say("record " + json.dumps({**line, "params_sha256": digest.hexdigest()}))


# The data ------------------------------------------------------------------------


def get_dataloader(dataset: Dataset, settings: argparse.Namespace, train: bool) -> DataLoader:
    """Batches of this process's share of a dataset.

    To train: rank r takes images r, r + N, r + 2N, ... of one shuffled list, so that
    all ranks together have at each step the batch that one process would have.
    To test: each image once. A DistributedSampler would repeat some to fill up.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    sampler = None
    if train:
        sampler = DistributedSampler(dataset, world, rank, seed=SEED, drop_last=True)
    else:
        dataset = Subset(dataset, range(rank, len(dataset), world))
    return DataLoader(
        dataset,
        batch_size=settings.batch_size // world,
        sampler=sampler,
        drop_last=train,
        num_workers=settings.num_workers,
        persistent_workers=settings.num_workers > 0,
        pin_memory=torch.cuda.is_available(),  # lets copies to a GPU overlap computing
    )


# The files: rank 0 writes them ---------------------------------------------------


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that is there whole or not at all, whatever happens meanwhile."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error.strerror}; earlier files are whole") from None


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest last."""
    found = folder.glob("checkpoint_epoch_*.pt")
    return sorted(found, key=lambda path: int(re.sub(r"\D", "", path.name)))


def prepare_folder(folder: Path, resume: bool) -> dict[str, Any] | None:
    """Makes the folder for checkpoints; returns the newest one there is, where wanted."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make --checkpoint-dir {folder}: {error.strerror}") from None
    write_whole(folder / ".probe", b"")  # better now than after an epoch
    (folder / ".probe").unlink()
    found = checkpoints(folder)
    if not found:
        return None
    if not resume:
        raise ValueError(f"{folder} holds {found[-1].name}: give --resume or another --checkpoint-dir")
    try:
        return torch.load(found[-1], map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds here, and all mean one thing
        reason = str(error).splitlines()[0]
        raise ValueError(f"{found[-1]} is damaged: delete it to go on from the one before ({reason})") from None


def save(folder: Path, state: dict[str, Any]) -> None:
    """Writes the checkpoint of an epoch, and the metrics up to it."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(folder / f"checkpoint_epoch_{state['epoch']}.pt", buffer.getvalue())
    text = io.StringIO()
    table = csv.DictWriter(text, state["history"][0])
    table.writeheader()
    table.writerows(state["history"])
    write_whole(folder / "metrics.csv", text.getvalue().encode())


def draw_curves(folder: Path, history: list[dict[str, float]]) -> None:
    """Draws loss and accuracy of all epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part in ("train", "test"):
            axes.plot(*zip(*((row["epoch"], row[f"{part}_{name}"]) for row in history)), label=part)
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture)
    write_whole(folder / "curves.png", picture.getvalue())


# The training --------------------------------------------------------------------


def floats(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Bytes as numbers from 0 to 1, on the device."""
    return images.to(device, non_blocking=True).float() / 255


def sums(loss: torch.Tensor, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """What a batch adds: its losses, its right answers, its images."""
    right = (outputs.argmax(1) == labels).sum()
    return torch.stack([loss.detach() * len(labels), right, torch.ones_like(labels).sum()]).double()


def means(batches: list[torch.Tensor], device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy over all processes: sums first, then one division."""
    total = sum(batches, torch.zeros(3, dtype=torch.float64, device=device))
    dist.all_reduce(total)
    loss, right, count = total.tolist()
    return loss / count, right / count


def train_epoch(
    settings: argparse.Namespace,
    model: DDP,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    epoch: int,
) -> tuple[float, float, int]:
    """Trains for one epoch; returns mean loss, accuracy, and the number of steps."""
    model.train()
    batches = []
    for images, labels in progress(loader):
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        outputs = model(floats(images, device))
        loss = cross_entropy(outputs, labels)
        loss.backward()  # in here DDP averages the gradients over all processes
        optimizer.step()
        batches.append(sums(loss, outputs, labels))
    return *means(batches, device), len(batches)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy on images that the model was not trained on."""
    model.eval()
    batches = []
    for images, labels in loader:
        labels = labels.to(device, non_blocking=True)
        outputs = model(floats(images, device))
        batches.append(sums(cross_entropy(outputs, labels), outputs, labels))
    return means(batches, device)


def progress(loader: DataLoader) -> Iterator[Any]:
    """The batches of a loader, with a bar on a terminal; a log gets a line per epoch."""
    for done, batch in enumerate(loader, 1):
        yield batch
        if dist.get_rank() == 0 and sys.stderr.isatty():
            bar, end = "#" * (40 * done // len(loader)), "\n" if done == len(loader) else ""
            print(f"\r[{bar:40}] {done}/{len(loader)}", end=end, file=sys.stderr, flush=True)


def warm_up(model: DDP, image: torch.Tensor, device: torch.device) -> None:
    """Makes one backward pass and throws its gradients away.

    At its first step DDP groups the gradients otherwise than at all later ones, and
    sums of floats depend on the grouping. This makes the first step after a resume
    like any other, so that it computes, bit for bit, what it would have without it.
    """
    model(floats(image.unsqueeze(0), device)).sum().backward()
    model.zero_grad()


def restore(state: dict[str, Any], parts: dict[str, Any]) -> None:
    """Puts a checkpoint into the model, the optimizer, and whatever else is there."""
    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except (RuntimeError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the checkpoint is of another model or program ({reason})") from None


def run(settings: argparse.Namespace, complaint: ValueError | None, build: Any, train: Any, **more: Any) -> None:
    """Trains a model from `build` by calling `train` for each epoch.

    `more` are parts of the training, beside model and optimizer, that have a state.
    """
    device = setup_distributed(settings.timeout)
    with one_voice():
        if complaint:
            raise complaint
    nodes = check_world()
    rank, world = dist.get_rank(), dist.get_world_size()
    start_record(device)
    if rank == 0:
        say(
            f"Starting distributed training on {world} {'GPUs' if device.type == 'cuda' else 'CPU processes'} "
            f"(nodes x processes: {nodes} x {world // nodes}, backend: {dist.get_backend()})"
        )
        say(f"Master node: {host()}")
    images, test_images, classes = from_rank_0(lambda: DATASETS[settings.dataset](settings.data_dir))
    state = from_rank_0(lambda: prepare_folder(settings.checkpoint_dir, settings.resume))
    with one_voice():
        if len(images) < world:
            raise ValueError(f"{world} processes, but only {len(images)} images to train on; start fewer")
        if settings.batch_size % world or settings.batch_size > len(images):
            raise ValueError(
                f"--batch-size {settings.batch_size} is for all {world} processes together: "
                f"a multiple of {world}, up to the {len(images)} images, such as {world * max(1, 64 // world)}"
            )
    loader = get_dataloader(images, settings, train=True)
    test_loader = get_dataloader(test_images, settings, train=False)

    torch.manual_seed(SEED)  # the same initial parameters on all ranks
    channels, size, _ = images[0][0].shape
    model = DDP(build(channels, size, classes).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9)
    parts = {"model": model.module, "optimizer": optimizer, **more}
    warm_up(model, images[0][0], device)
    history: list[dict[str, float]] = []
    if state:
        with one_voice():
            restore(state, parts)
        history = state["history"]
        if rank == 0:
            say(f"Resuming after epoch {len(history)}")

    steps = 0
    for epoch in range(len(history) + 1, settings.epochs + 1):
        start = time.monotonic()
        loader.sampler.set_epoch(epoch)  # another order in each epoch
        loss, accuracy, made = train(settings, model, loader, optimizer, device, epoch)
        test_loss, test_accuracy = evaluate(model.module, test_loader, device)
        steps += made
        row = {"epoch": epoch, "train_loss": loss, "train_accuracy": accuracy}
        row |= {"test_loss": test_loss, "test_accuracy": test_accuracy}
        history.append({**row, "seconds": round(time.monotonic() - start, 3)})
        if rank == 0:
            say(f"Epoch {epoch} - Avg Loss: {loss:.6f}, Accuracy: {accuracy:.2%}, Test Accuracy: {test_accuracy:.2%}")
        with one_voice():
            if rank == 0:
                saved = {name: part.state_dict() for name, part in parts.items()}
                save(settings.checkpoint_dir, {**saved, "epoch": epoch, "history": history})
    if rank == 0:
        draw_curves(settings.checkpoint_dir, history)
    end_record(model.module, steps)
    dist.barrier()  # nobody leaves before rank 0 has written everything
    dist.destroy_process_group()


class Parser(argparse.ArgumentParser):
    """The settings of a training."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description)
        self.add_argument("--epochs", type=int, default=10)
        self.add_argument("--batch-size", type=int, default=64, help="of all processes together")
        self.add_argument("--learning-rate", type=float, default=0.05)
        self.add_argument("--dataset", default="digits", help=", ".join(DATASETS))
        self.add_argument("--data-dir", type=Path, default=Path("data"))
        self.add_argument("--checkpoint-dir", type=Path, default=Path("checkpoints"))
        self.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
        self.add_argument("--num-workers", type=int, default=0, help="of each process, to load data")
        self.add_argument("--timeout", type=float, default=600, help="seconds to wait for a process")

    def error(self, message: str) -> None:
        """Leaves it to `one_voice` to print what is wrong with the command line."""
        raise ValueError(message)

    def settings(self) -> tuple[argparse.Namespace, ValueError | None]:
        """Reads the command line; returns the settings, and what is wrong with them."""
        settings = self.parse_args([])
        try:
            settings = self.parse_args()
            self.check(settings)
        except ValueError as error:
            return settings, error
        return settings, None

    def check(self, settings: argparse.Namespace) -> None:
        """Refuses settings that cannot be."""
        for name in ("epochs", "batch_size", "learning_rate", "timeout"):
            if not 0 < getattr(settings, name) < float("inf"):
                raise ValueError(f"--{name.replace('_', '-')} {getattr(settings, name)}: give more than 0")
        if settings.num_workers < 0:
            raise ValueError(f"--num-workers {settings.num_workers}: give 0 or more")
        if settings.dataset not in DATASETS:
            raise ValueError(f"--dataset {settings.dataset}: give one of {', '.join(DATASETS)}")


@record  # torchrun shows the traceback of the first process that failed
def main() -> None:
    settings, complaint = Parser("Train a small network with DDP.").settings()
    run(settings, complaint, SimpleConvNet, train_epoch)


if __name__ == "__main__":
    main()
