"""Data-parallel training with DDP, on any number of nodes and processes.

    torchrun --standalone --nproc-per-node 2 train_distributed.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_distributed.py --checkpoint-dir two_nodes
    sbatch run_distributed.sbatch

You should now see a line for each epoch, and an accuracy above 97% at the end.
The losses are those of one process: the processes share one global batch.
Needs image_data.py and epoch_files.py beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from epoch_files import draw_curves, prepare_folder, save
from image_data import DATASETS
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
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
    leave(2)


def leave(status: int) -> NoReturn:
    """Ends this process, after all others have come to their end as well.

    Not by sys.exit: a thread of gloo may still be about to free a tensor, and aborts
    the process when Python has already begun to clean up.
    """
    dist.barrier()  # torchrun ends all when one has failed: nobody is cut short here
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


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


def fingerprint(model: nn.Module) -> str:
    """Return the first 12 digits of the SHA-256 of the parameters: equal where all bits are."""
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


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


@dataclass
class Training:
    """What a training works with."""

    settings: argparse.Namespace
    device: torch.device
    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    test_loader: DataLoader


def train_epoch(training: Training, epoch: int) -> tuple[float, float, int]:
    """Trains for one epoch; returns mean loss, accuracy, and the number of steps."""
    device, model = training.device, training.model
    model.train()
    training.loader.sampler.set_epoch(epoch)  # without it, the same order in each epoch
    batches = []
    for images, labels in progress(training.loader):
        labels = labels.to(device, non_blocking=True)
        training.optimizer.zero_grad()
        outputs = model(floats(images, device))
        loss = cross_entropy(outputs, labels)
        loss.backward()  # in here DDP averages the gradients over all processes
        training.optimizer.step()
        batches.append(sums(loss, outputs, labels))
    return *means(batches, device), len(batches)


@torch.no_grad()
def evaluate(training: Training) -> tuple[float, float]:
    """Mean loss and accuracy on images that the model was not trained on."""
    model = training.model.module
    model.eval()
    batches = []
    for images, labels in training.test_loader:
        labels = labels.to(training.device, non_blocking=True)
        outputs = model(floats(images, training.device))
        batches.append(sums(cross_entropy(outputs, labels), outputs, labels))
    return means(batches, training.device)


def progress(loader: DataLoader) -> Iterator[Any]:
    """The batches of a loader, with a bar on a terminal; a log gets a line per epoch."""
    for done, batch in enumerate(loader, 1):
        yield batch
        if dist.get_rank() == 0 and sys.stderr.isatty():
            bar, end = "#" * (40 * done // len(loader)), "\n" if done == len(loader) else ""
            print(f"\r[{bar:40}] {done}/{len(loader)}", end=end, file=sys.stderr, flush=True)


def warm_up(model: DistributedDataParallel, image: torch.Tensor, device: torch.device) -> None:
    """Makes one backward pass and throws its gradients away.

    At its first step DDP groups the gradients otherwise than at all later ones, and
    sums of floats depend on the grouping. This makes the first step after a resume
    like any other: it computes, bit for bit, what it would have without the break.
    """
    model(floats(image.unsqueeze(0), device)).sum().backward()
    model.zero_grad()


def start_line(device: torch.device, nodes: int) -> str:
    """What rank 0 says at the start."""
    world = dist.get_world_size()
    return (
        f"Starting distributed training on {world} {'GPUs' if device.type == 'cuda' else 'CPU processes'} "
        f"(nodes x processes: {nodes} x {world // nodes}, backend: {dist.get_backend()}), master node: {host()}"
    )


def prepare(settings: argparse.Namespace, complaint: ValueError | None, build: Any) -> Training:
    """Joins the processes, reads the data, and makes the model, in this order."""
    device = setup_distributed(settings.timeout)
    with one_voice():
        if complaint:
            raise complaint
    nodes = check_world()
    rank, world = dist.get_rank(), dist.get_world_size()
    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    say(
        f"rank {rank}/{world} start host={host()} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} "
        f"device={device} backend={dist.get_backend()} framework=torch-{torch.__version__}{job}"
    )
    if rank == 0:
        say(start_line(device, nodes))

    images, test_images, classes = from_rank_0(lambda: DATASETS[settings.dataset](settings.data_dir))
    batch_size = settings.batch_size
    with one_voice():
        if len(images) < world:
            raise ValueError(f"{world} processes for {len(images)} images to train on: start fewer")
        if batch_size % world or batch_size > len(images):
            raise ValueError(
                f"--batch-size {batch_size} is shared by {world} processes, of {len(images)} images: "
                f"give a multiple of {world}, such as {world * max(1, min(64, len(images)) // world)}"
            )
    torch.manual_seed(SEED)  # the same first parameters on all ranks
    channels, size, _ = images[0][0].shape
    model = DistributedDataParallel(build(channels, size, classes).to(device))
    warm_up(model, images[0][0], device)
    return Training(
        settings,
        device,
        model,
        torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9),
        get_dataloader(images, settings, train=True),
        get_dataloader(test_images, settings, train=False),
    )


def resume(training: Training, parts: dict[str, Any]) -> list[dict[str, float]]:
    """Goes on from the newest checkpoint, where there is one; returns its metrics."""
    folder, wanted = training.settings.checkpoint_dir, training.settings.resume
    state = from_rank_0(lambda: prepare_folder(folder, wanted))
    if not state:
        return []
    with one_voice():
        try:
            for name, part in parts.items():
                part.load_state_dict(state[name])
            history = state["history"]
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"the checkpoint in {folder} is of another model: {reason}") from None
    if dist.get_rank() == 0:
        say(f"Resuming after epoch {len(history)}")
    return history


def fit(training: Training, train: Callable[[Training, int], tuple[float, float, int]], **more: Any) -> None:
    """Trains for all epochs by calling `train`.

    `more` are objects with a state to save, beside the model and the optimizer.
    """
    settings, rank, world = training.settings, dist.get_rank(), dist.get_world_size()
    parts = {"model": training.model.module, "optimizer": training.optimizer, **more}
    history = resume(training, parts)
    steps = 0
    for epoch in range(len(history) + 1, settings.epochs + 1):
        start = time.monotonic()
        loss, accuracy, made = train(training, epoch)
        test_loss, test_accuracy = evaluate(training)
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
    params = fingerprint(training.model.module)
    say(f"rank {rank}/{world} end steps={steps} loss={history[-1]['train_loss']:.4f} params={params}")
    leave(0)


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
        for name, value in vars(settings).items():
            none = name == "num_workers" and value == 0
            if type(value) in (int, float) and not (none or 0 < value < float("inf")):
                raise ValueError(f"--{name.replace('_', '-')} {value}: give more than 0")
        if settings.dataset not in DATASETS:
            raise ValueError(f"--dataset {settings.dataset}: give one of {', '.join(DATASETS)}")


@record  # torchrun shows the traceback of the first process that failed
def main() -> None:
    settings, complaint = Parser("Train a small network with DDP.").settings()
    fit(prepare(settings, complaint, SimpleConvNet), train_epoch)


if __name__ == "__main__":
    main()
