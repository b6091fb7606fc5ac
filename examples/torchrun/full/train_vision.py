"""A residual network, with what saves time and memory, on any number of nodes.

    torchrun --standalone --nproc-per-node 2 train_vision.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_vision.py --checkpoint-dir vision_two_nodes
    sbatch run_vision.sbatch

You should now see a line for each epoch, and an accuracy above 95% at the end.
Needs train_distributed.py, processes.py, image_data.py and epoch_files.py beside it.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from processes import run
from torch import nn
from torch.nn.functional import cross_entropy, pad
from torch.utils.checkpoint import checkpoint
from train_distributed import SEED, Parser, Training, fit, floats, means, positive, prepare, progress, sums

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Block(nn.Module):
    """Two convolutions, and a way around them.

    Group norm looks at one image at a time. Batch norm looks at all images of a
    process, and gives other numbers where a process has fewer of them.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            nn.GroupNorm(4, outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.GroupNorm(4, outside),
        )
        self.around = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.GroupNorm(4, outside))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layers(images) + self.around(images))


class SmallResNet(nn.Module):
    """Three residual blocks, for small images."""

    def __init__(self, channels: int, _: int, classes: int, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList([Block(channels, 16, 1), Block(16, 32, 2), Block(32, 64, 2)])
        self.head = nn.Linear(64, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            if self.recompute and self.training:
                # Keeps what goes into a block, and computes its inside a second time.
                images = checkpoint(block, images, use_reentrant=False)
            else:
                images = block(images)
        return self.head(images.mean((2, 3)))


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move each image by up to one pixel, up or down and left or right."""
    _, _, height, width = images.shape
    places = torch.randint(3, (len(images), 2), generator=generator).tolist()
    larger = pad(images, (1, 1, 1, 1))
    cut = [i[:, y : y + height, x : x + width] for i, (y, x) in zip(larger, places, strict=True)]
    return torch.stack(cut)


def train_epoch(training: Training, epoch: int, scaler: torch.amp.GradScaler) -> tuple[float, float, int]:
    """Train for one epoch; return mean loss, accuracy, and the number of steps."""
    settings, device, model = training.settings, training.device, training.model
    model.train()
    training.loader.sampler.set_epoch(epoch)
    # The seed of the parameters is one for all ranks; this one is another for each.
    seed = SEED + epoch * dist.get_world_size() + dist.get_rank()
    generator = torch.Generator().manual_seed(seed)
    for group in training.optimizer.param_groups:  # the rate falls along a cosine
        share = 0.5 + 0.5 * math.cos(math.pi * (epoch - 1) / settings.epochs)
        group["lr"] = share * settings.learning_rate
    precision = PRECISIONS[settings.precision]
    batches = []
    for images, labels in progress(training.loader):
        images = shifted(floats(images, device), generator)
        labels = labels.to(device, non_blocking=True)
        training.optimizer.zero_grad()
        pieces = torch.arange(len(labels)).chunk(settings.accumulate)
        for piece in pieces:
            # Gradients add up here, and go to the other processes with the last piece.
            with nullcontext() if piece is pieces[-1] else model.no_sync():
                with torch.autocast(device.type, precision, enabled=precision is not None):
                    outputs = model(images[piece])
                    loss = cross_entropy(outputs, labels[piece])
                scaler.scale(loss * len(piece) / len(labels)).backward()
            batches.append(sums(loss, outputs, labels[piece]))
        scaler.step(training.optimizer)
        scaler.update()
    return *means(batches, device), len(training.loader)


def main() -> None:
    parser = Parser("Train a residual network with DDP.")
    parser.add_argument("--accumulate", type=positive(int), default=1, help="pieces to cut a batch into")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--recompute", action="store_true", help="gradient checkpointing")
    settings = parser.parse_args()
    training = prepare(settings, partial(SmallResNet, recompute=settings.recompute))
    # Small gradients vanish in float16, unless the loss is scaled up before.
    scaler = torch.amp.GradScaler(training.device.type, enabled=settings.precision == "float16")
    fit(training, partial(train_epoch, scaler=scaler), scaler=scaler)


if __name__ == "__main__":
    run(main)
