"""Data-parallel training with DDP, on any number of nodes and processes.

    torchrun --standalone --nproc-per-node 2 train_distributed.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_distributed.py --checkpoint-dir two_nodes
    sbatch run_distributed.sbatch

You should now see a line for each epoch, and an accuracy above 97% at the end.
The losses are those of one process: the processes share one global batch.
Needs processes.py and image_data.py beside it.
"""

import argparse
import fcntl
import hashlib
import os
import re
import time
import zipfile
from pathlib import Path

import torch
import torch.distributed as dist
from image_data import DATASETS, batches, get_dataloader
from processes import check, from_rank_0, say_once, setup_distributed, write_whole
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


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


def sums(loss, outputs, labels):
    """Return what a batch adds to the metrics: its losses, right answers and images."""
    right = (outputs.argmax(1) == labels).sum()
    return torch.stack([loss.detach() * len(labels), right, torch.ones_like(labels).sum()]).double()


def means(total):
    """Return mean loss and accuracy over all processes: sums first, then one division."""
    dist.all_reduce(total)
    loss, right, images = total.tolist()
    return loss / images, right / images


def train_step(model, optimizer, images, labels):
    """Make one step; return what it adds to the metrics."""
    optimizer.zero_grad()
    outputs = model(images)
    loss = cross_entropy(outputs, labels)
    loss.backward()  # in here DDP averages the gradients over all processes
    optimizer.step()
    return sums(loss, outputs, labels)


def train_epoch(model, optimizer, loader, epoch, device):
    """Train for one epoch; return mean loss and accuracy."""
    model.train()
    loader.sampler.set_epoch(epoch)  # without it, the same order in each epoch
    total = torch.zeros(3, dtype=torch.float64, device=device)
    for images, labels in batches(loader, device):
        total += train_step(model, optimizer, images, labels)
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


def warm_up(model, image, device):
    """Make one backward pass and throw its gradients away.

    DDP groups the gradients differently at its first step than at all later ones, and
    sums of floats depend on the grouping. This makes the first step after a resume
    like any other: it computes, bit for bit, what it would have without the break.
    """
    model(image.unsqueeze(0).to(device) / 255).sum().backward()
    model.zero_grad()


def prepare(settings, build):
    """Join the processes, read the data, and make the model, in this order."""
    device = setup_distributed(settings.device, settings.timeout)
    images, test_images, classes = from_rank_0(lambda: DATASETS[settings.dataset](settings.data_dir))
    world, wanted, number = dist.get_world_size(), settings.batch_size, len(images)
    share = max(1, wanted // world)  # of a batch, for each process: the largest equal share
    check(world <= number, f"{world} processes for {number} images to train on: start fewer")
    check(share * world <= number, f"--batch-size {wanted} is more than the {number} images to train on: give fewer")
    check(settings.num_workers >= 0, f"--num-workers {settings.num_workers}: give 0 or more")
    if share * world != wanted:
        say_once(f"--batch-size {wanted}: each of {world} processes takes {share} images, {share * world} a step")
    loader = get_dataloader(images, share, settings.num_workers, train=True)
    test_loader = get_dataloader(test_images, share, settings.num_workers, train=False)
    torch.manual_seed(0)  # the same first parameters on all ranks
    channels, size, _ = images[0][0].shape
    model = DistributedDataParallel(build(channels, size, classes).to(device))
    warm_up(model, images[0][0], device)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9)
    return device, model, optimizer, loader, test_loader


def checkpoints(folder, name):
    """Return the checkpoints in a folder, the newest last; a copy, such as `checkpoint_epoch_1-good.pt`, is not one."""
    found = [(re.fullmatch(rf"{name}(\d+)\.pt", path.name), path) for path in folder.iterdir()]
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def load_newest(folder, name, names, resume=True):
    """Make the folder; return the newest checkpoint in it that is whole, or None. Rank 0 calls this."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_CREAT | os.O_WRONLY)  # stays open and locked until this process ends
    except OSError as error:  # better now than after an epoch
        raise ValueError(f"cannot write in --checkpoint-dir {folder}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"another job is training in {folder}: wait, or give another --checkpoint-dir") from None
    except OSError:
        pass  # a file system without locks
    found = checkpoints(folder, name)
    if found and not resume:
        raise ValueError(f"{folder} holds {found[-1].name}: give --resume or another --checkpoint-dir")
    for path in reversed(found):
        try:
            if damaged := zipfile.ZipFile(path).testzip():  # compares the checksums: torch.load does not
                raise ValueError(f"{damaged} has changed")
            state = torch.load(path, map_location="cpu", weights_only=True)
            if lacking := [name for name in names if name not in state]:
                raise ValueError(f"it has no {lacking[0]!r}: another program or version wrote it")
            return state
        except Exception as error:  # of many kinds, and all mean one thing
            reason = str(error).split("\n")[0]
            print(f"warning: {path} is damaged, trying the one before ({reason})")
    if found:
        raise ValueError(f"{folder} holds no checkpoint that is whole: delete them to start over")
    return None


def restore(folder, state, parts):
    """Give the parts what a checkpoint holds of them; one of another model ends all processes."""
    problem = ""
    try:
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except (RuntimeError, ValueError, KeyError) as error:
        problem = " ".join(str(error).split())
    check(not problem, f"the checkpoint in {folder} is of another model: {problem}")


def resume(settings, parts):
    """Load the newest checkpoint if there is one; return its metrics."""
    folder = settings.checkpoint_dir
    state = from_rank_0(lambda: load_newest(folder, "checkpoint_epoch_", [*parts, "history"], settings.resume))
    if state is None:
        return []
    restore(folder, state, parts)
    say_once(f"Resuming after epoch {len(state['history'])}")
    return state["history"]


def end_epoch(folder, parts, history, train, test, seconds):
    """Print the metrics of an epoch, and let rank 0 write them and a checkpoint."""
    row = {"epoch": len(history) + 1, "train_loss": train[0], "train_accuracy": train[1]}
    row |= {"test_loss": test[0], "test_accuracy": test[1], "seconds": round(seconds, 3)}
    history.append(row)
    say_once(f"Epoch {len(history)} - Avg Loss: {train[0]:.6f}, Accuracy: {train[1]:.2%}, Test Accuracy: {test[1]:.2%}")

    def write():  # the checkpoint last: killed in between, a resume writes both again
        table = "".join(",".join(map(str, line)) + "\n" for line in [row.keys(), *(one.values() for one in history)])
        write_whole(folder / "metrics.csv", lambda file: file.write(table.encode()))
        state = {"epoch": len(history), "history": history, **{name: parts[name].state_dict() for name in parts}}
        write_whole(folder / f"checkpoint_epoch_{len(history)}.pt", lambda file: torch.save(state, file))

    from_rank_0(write)


def draw_curves(folder, history):
    """Draw loss and accuracy of all epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for part in ("train", "test"):
            axes.plot([row["epoch"] for row in history], [row[f"{part}_{name}"] for row in history], label=part)
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    write_whole(folder / "curves.png", figure.savefig)


def conclude(model, **fields):
    """Print how this process ended; `params` is the same on processes whose parameters have the same bits."""
    digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values()))
    shown = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"rank {dist.get_rank()}/{dist.get_world_size()} end {shown} params={digest.hexdigest()[:12]}")


def positive(text):
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give more than 0")
    return float(text)


def count(text):
    return int(positive(int(text)))


def options(description):
    parser = argparse.ArgumentParser(description=description, usage=argparse.SUPPRESS)  # each rank would print it
    parser.add_argument("--epochs", type=count, default=10)
    parser.add_argument("--batch-size", type=count, default=64, help="of all processes together")
    parser.add_argument("--learning-rate", type=positive, default=0.05)
    parser.add_argument("--dataset", choices=DATASETS, default="digits")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("checkpoints"))
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--num-workers", type=int, default=0, help="processes that load data, for each process")
    parser.add_argument("--timeout", type=positive, default=600, help="seconds to wait for a lost process")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cuda insists on GPUs")
    return parser


@record  # torchrun shows the traceback of the first process that failed
def main():
    settings = options("Train a small network with DDP.").parse_args()
    device, model, optimizer, loader, test_loader = prepare(settings, SimpleConvNet)
    parts = {"model": model.module, "optimizer": optimizer}
    history = resume(settings, parts)
    first = len(history)
    for epoch in range(first + 1, settings.epochs + 1):
        start = time.monotonic()
        train = train_epoch(model, optimizer, loader, epoch, device)
        test = evaluate(model.module, test_loader, device)
        end_epoch(settings.checkpoint_dir, parts, history, train, test, time.monotonic() - start)
    from_rank_0(lambda: draw_curves(settings.checkpoint_dir, history))
    conclude(model.module, steps=(len(history) - first) * len(loader), loss=f"{history[-1]['train_loss']:.4f}")


if __name__ == "__main__":
    main()
    if dist.is_initialized():  # not after --help
        dist.destroy_process_group()
