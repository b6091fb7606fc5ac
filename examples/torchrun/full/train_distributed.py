"""Data-parallel training with DDP, on any number of nodes and processes.

    torchrun --standalone --nproc-per-node 2 train_distributed.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_distributed.py --checkpoint-dir two_nodes
    sbatch run_distributed.sbatch

You should now see a line for each epoch, and an accuracy above 97% at the end.
The losses are those of one process: the processes share one global batch.
Needs processes.py, image_data.py and epoch_files.py beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from epoch_files import draw_curves, prepare_folder, save
from image_data import DATASETS
from processes import announce, conclude, from_rank_0, one_voice, run, say_once, setup_distributed
from torch import nn
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


def get_dataloader(dataset: Dataset, share: int, num_workers: int, train: bool) -> DataLoader:
    """Return the batches of this process's share of a dataset.

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
        batch_size=share,
        sampler=sampler,
        drop_last=train,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),  # lets copies to a GPU overlap computing
    )


def floats(images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Convert bytes to numbers from 0 to 1, on the device."""
    return images.to(device, non_blocking=True).float() / 255


def sums(loss: torch.Tensor, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return what a batch adds to the metrics: its losses, right answers and images."""
    right = (outputs.argmax(1) == labels).sum()
    return torch.stack([loss.detach() * len(labels), right, torch.ones_like(labels).sum()]).double()


def means(batches: list[torch.Tensor], device: torch.device) -> tuple[float, float]:
    """Return mean loss and accuracy over all processes: sums first, then one division."""
    total = sum(batches, torch.zeros(3, dtype=torch.float64, device=device))
    dist.all_reduce(total)
    loss, right, count = total.tolist()
    return loss / count, right / count


@dataclass
class Training:
    """Everything that a training needs."""

    settings: argparse.Namespace
    device: torch.device
    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    test_loader: DataLoader


def train_epoch(training: Training, epoch: int) -> tuple[float, float, int]:
    """Train for one epoch; return mean loss, accuracy, and the number of steps."""
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
    """Return mean loss and accuracy on images that the model was not trained on."""
    model = training.model.module
    model.eval()
    batches = []
    for images, labels in training.test_loader:
        labels = labels.to(training.device, non_blocking=True)
        outputs = model(floats(images, training.device))
        batches.append(sums(cross_entropy(outputs, labels), outputs, labels))
    return means(batches, training.device)


def progress(loader: DataLoader) -> Iterator[Any]:
    """Yield the batches of a loader, with a progress bar on a terminal."""
    for done, batch in enumerate(loader, 1):
        yield batch
        if dist.get_rank() == 0 and sys.stderr.isatty():
            bar, end = "#" * (40 * done // len(loader)), "\n" if done == len(loader) else ""
            print(f"\r[{bar:40}] {done}/{len(loader)}", end=end, file=sys.stderr, flush=True)


def warm_up(model: DistributedDataParallel, image: torch.Tensor, device: torch.device) -> None:
    """Make one backward pass and throw its gradients away.

    DDP groups the gradients differently at its first step than at all later ones, and
    sums of floats depend on the grouping. This makes the first step after a resume
    like any other: it computes, bit for bit, what it would have without the break.
    """
    model(floats(image.unsqueeze(0), device)).sum().backward()
    model.zero_grad()


def share_of(batch_size: int, images: int) -> int:
    """Return how many images of a batch each process takes: the nearest share, where it does not divide."""
    world = dist.get_world_size()
    share = max(1, round(batch_size / world))
    with one_voice():
        if images < world:
            raise ValueError(f"{world} processes for {images} images to train on: start fewer")
        if share * world > images:
            raise ValueError(f"--batch-size {batch_size} is more than the {images} images to train on: give fewer")
    if share * world != batch_size:
        say_once(f"--batch-size {batch_size}: each of {world} processes takes {share} images, {share * world} a step")
    return share


def prepare(settings: argparse.Namespace, build: Any) -> Training:
    """Join the processes, read the data, and make the model, in this order."""
    device = setup_distributed(settings.device, settings.timeout)
    announce(device)
    images, test_images, classes = from_rank_0(lambda: DATASETS[settings.dataset](settings.data_dir))
    share = share_of(settings.batch_size, len(images))
    torch.manual_seed(SEED)  # the same first parameters on all ranks
    channels, size, _ = images[0][0].shape
    model = DistributedDataParallel(build(channels, size, classes).to(device))
    warm_up(model, images[0][0], device)
    return Training(
        settings,
        device,
        model,
        torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9),
        get_dataloader(images, share, settings.num_workers, train=True),
        get_dataloader(test_images, share, settings.num_workers, train=False),
    )


def resume(training: Training, parts: dict[str, Any]) -> list[dict[str, float]]:
    """Load the newest checkpoint if there is one; return its metrics."""
    folder, wanted = training.settings.checkpoint_dir, training.settings.resume
    state = from_rank_0(lambda: prepare_folder(folder, wanted))
    if state is None:
        return []
    with one_voice():
        try:
            for name, part in parts.items():
                part.load_state_dict(state[name])
            history = state["history"]
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"the checkpoint in {folder} is of another model: {reason}") from None
    say_once(f"Resuming after epoch {len(history)}")
    return history


def fit(training: Training, train: Callable[[Training, int], tuple[float, float, int]], **more: Any) -> None:
    """Train for all epochs by calling `train`.

    `more` are objects with a state to save, beside the model and the optimizer.
    """
    settings = training.settings
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
        say_once(f"Epoch {epoch} - Avg Loss: {loss:.6f}, Accuracy: {accuracy:.2%}, Test Accuracy: {test_accuracy:.2%}")
        from_rank_0(lambda: save(settings.checkpoint_dir, parts, history))
    from_rank_0(lambda: draw_curves(settings.checkpoint_dir, history))
    conclude(training.model.module, steps=steps, loss=f"{history[-1]['train_loss']:.4f}")


class Parser(argparse.ArgumentParser):
    """The settings of a training."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description)
        self.add_argument("--epochs", type=positive(int), default=10)
        self.add_argument("--batch-size", type=positive(int), default=64, help="of all processes together")
        self.add_argument("--learning-rate", type=positive(float), default=0.05)
        self.add_argument("--dataset", choices=DATASETS, default="digits")
        self.add_argument("--data-dir", type=Path, default=Path("data"))
        self.add_argument("--checkpoint-dir", type=Path, default=Path("checkpoints"))
        self.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
        self.add_argument(
            "--num-workers", type=positive(int, 0), default=0, help="processes that load data, for each process"
        )
        self.add_argument("--timeout", type=positive(float), default=600, help="seconds to wait for a lost process")
        self.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cuda insists on GPUs")

    def error(self, message: str) -> NoReturn:
        """Let one process report what is wrong with the command line, and end all."""
        setup_distributed("cpu")
        with one_voice():
            raise ValueError(message)
        raise AssertionError


def positive(kind: type, least: float | None = None) -> Callable[[str], float]:
    """Return a reader of numbers above 0, or from `least` on, for argparse."""

    def read(text: str) -> float:
        value = kind(text)
        if not (0 < value < float("inf") or value == least):
            raise argparse.ArgumentTypeError(f"{text}: give {'more than 0' if least is None else f'{least} or more'}")
        return value

    read.__name__ = kind.__name__  # argparse says "invalid int value"
    return read


def main() -> None:
    settings = Parser("Train a small network with DDP.").parse_args()
    fit(prepare(settings, SimpleConvNet), train_epoch)


if __name__ == "__main__":
    run(main)
