"""Data-parallel training with DDP, on any number of nodes and processes.

    torchrun --standalone --nproc-per-node 2 train_distributed.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_distributed.py --checkpoint-dir two_nodes
    sbatch run_distributed.sbatch

You should now see a line for each epoch, and an accuracy above 97% at the end.
The losses are those of one process: the processes share one global batch.
Needs image_data.py, processes.py and files.py beside it.
"""

import argparse
import hashlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from files import draw_curves, load_checkpoint, save_checkpoint
from image_data import DATASETS, batches, load_data
from processes import on_rank_0, say_once, setup_distributed
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def more_than(limit, kind):
    """Return a type for argparse that accepts only numbers above a limit."""

    def number(text):
        if not limit < kind(text) < float("inf"):
            raise argparse.ArgumentTypeError(f"{text}: give more than {limit}")
        return kind(text)

    return number


def options(description):
    """Return a parser of the options that all programs have."""
    parser = argparse.ArgumentParser(description=description, usage=argparse.SUPPRESS)  # each rank would print it
    parser.add_argument("--epochs", type=more_than(0, int), default=10)
    parser.add_argument("--batch-size", type=more_than(0, int), default=64, help="of all processes together")
    parser.add_argument("--learning-rate", type=more_than(0, float), default=0.05)
    parser.add_argument("--dataset", choices=DATASETS, default="digits")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--num-workers", type=more_than(-1, int), default=0, help="processes per rank that load data")
    parser.add_argument("--timeout", type=more_than(0, float), default=600, help="seconds to wait for a lost process")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cuda insists on GPUs")
    return parser


class SimpleConvNet(nn.Module):
    """Two convolutions and a linear layer. With dropout or batch norm, other layouts would give other numbers."""

    def __init__(self, channels, size, classes):
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

    def forward(self, images):
        return self.layers(images)


def warm_up(model, image, device):
    """Make one backward pass and throw its gradients away.

    DDP groups the gradients differently at its first step than at all later ones, and
    sums of floats depend on the grouping. This makes the first step after a resume
    like any other: it computes, bit for bit, what it would have without the break.
    """
    model(image.unsqueeze(0).to(device) / 255).sum().backward()
    model.zero_grad()


def train_epoch(model, optimizer, loader, epoch, device):
    """Train for one epoch; return mean loss and accuracy."""
    model.train()
    loader.sampler.set_epoch(epoch)  # without it, the same order in each epoch
    total = torch.zeros(3, dtype=torch.float64, device=device)
    for images, labels in batches(loader, device):
        optimizer.zero_grad()
        outputs = model(images)
        loss = cross_entropy(outputs, labels)
        loss.backward()  # in here DDP averages the gradients over all processes
        optimizer.step()
        total += sums(loss, outputs, labels)
    return means(total)


@torch.no_grad()
def evaluate(model, loader, device):
    """Return mean loss and accuracy on images that the model was not trained on."""
    model.eval()
    total = torch.zeros(3, dtype=torch.float64, device=device)
    for images, labels in batches(loader, device):
        outputs = model(images)
        total += sums(cross_entropy(outputs, labels), outputs, labels)
    return means(total)


def sums(loss, outputs, labels):
    """Return what a batch adds to the metrics: its losses, right answers and images."""
    right = (outputs.argmax(1) == labels).sum()
    return torch.stack([loss.detach() * len(labels), right, torch.ones_like(labels).sum()]).double()


def means(total):
    """Return mean loss and accuracy over all processes: sums first, then one division."""
    dist.all_reduce(total)
    loss, right, images = total.tolist()
    return loss / images, right / images


def log_epoch(epoch, train, test, seconds):
    """Print the metrics of an epoch; return them as a row of metrics.csv."""
    say_once(f"Epoch {epoch} - Avg Loss: {train[0]:.6f}, Accuracy: {train[1]:.2%}, Test Accuracy: {test[1]:.2%}")
    row = {"epoch": epoch, "train_loss": train[0], "train_accuracy": train[1]}
    return row | {"test_loss": test[0], "test_accuracy": test[1], "seconds": round(seconds, 3)}


def log_end(model, **fields):
    """Print how this process ended; `params` is the same on processes whose parameters have the same bits."""
    digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values()))
    shown = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"rank {dist.get_rank()}/{dist.get_world_size()} end {shown} params={digest.hexdigest()[:12]}")


@record  # torchrun shows the traceback of the first process that failed
def main():
    settings = options("Train a small network with DDP.").parse_args()
    folder = settings.checkpoint_dir
    device = setup_distributed(settings.device, settings.timeout)
    loader, test_loader, shape = load_data(settings)

    torch.manual_seed(0)  # the same first parameters on all ranks
    model = DistributedDataParallel(SimpleConvNet(*shape).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9)
    warm_up(model, loader.dataset[0][0], device)
    parts = {"model": model.module, "optimizer": optimizer}  # what a checkpoint holds
    history = load_checkpoint(folder, "checkpoint_epoch_", parts, settings.resume).get("history", [])
    if first := len(history):
        say_once(f"Resuming after epoch {first}")

    for epoch in range(first + 1, settings.epochs + 1):
        start = time.monotonic()
        train = train_epoch(model, optimizer, loader, epoch, device)
        test = evaluate(model.module, test_loader, device)
        history.append(log_epoch(epoch, train, test, time.monotonic() - start))
        on_rank_0(save_checkpoint, folder, parts, history)

    on_rank_0(draw_curves, folder, history)
    log_end(model.module, steps=(len(history) - first) * len(loader), loss=f"{history[-1]['train_loss']:.4f}")


if __name__ == "__main__":
    main()
    if dist.is_initialized():  # not after --help
        dist.destroy_process_group()
