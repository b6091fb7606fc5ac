"""A residual network, with what saves time and memory, on any number of nodes.

    torchrun --standalone --nproc-per-node 2 train_vision.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_vision.py --checkpoint-dir vision_two_nodes
    sbatch run_vision.sbatch

You should now see a line for each epoch, and an accuracy above 95% at the end.
Needs train_distributed.py, image_data.py, processes.py and files.py beside it.
"""

import math
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from files import draw_curves, load_checkpoint, save_checkpoint
from image_data import batches, load_data
from processes import on_rank_0, say_once, setup_distributed
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy, pad
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from train_distributed import evaluate, log_end, log_epoch, means, more_than, options, sums, warm_up

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Block(nn.Module):
    """Two convolutions, and a way around them.

    Group norm looks at one image at a time. Batch norm looks at all images of a
    process, and gives other numbers if a process has fewer of them.
    """

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            nn.GroupNorm(4, outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.GroupNorm(4, outside),
        )
        self.around = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.GroupNorm(4, outside))

    def forward(self, images):
        return torch.relu(self.layers(images) + self.around(images))


class SmallResNet(nn.Module):
    """Three residual blocks, for small images."""

    def __init__(self, channels, _, classes, recompute):
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList([Block(channels, 16, 1), Block(16, 32, 2), Block(32, 64, 2)])
        self.head = nn.Linear(64, classes)

    def forward(self, images):
        for block in self.blocks:
            if self.recompute and self.training:
                # Keeps what goes into a block, and computes its inside a second time.
                images = checkpoint(block, images, use_reentrant=False)
            else:
                images = block(images)
        return self.head(images.mean((2, 3)))


def shifted(images, generator):
    """Move each image by up to one pixel, up or down and left or right."""
    _, _, height, width = images.shape
    places = torch.randint(3, (len(images), 2), generator=generator).tolist()
    larger = pad(images, (1, 1, 1, 1))
    cut = [i[:, y : y + height, x : x + width] for i, (y, x) in zip(larger, places, strict=True)]
    return torch.stack(cut)


def train_epoch(model, optimizer, scaler, loader, epoch, device, settings):
    """Train for one epoch; return mean loss and accuracy."""
    model.train()
    loader.sampler.set_epoch(epoch)
    # The seed of the parameters is one for all ranks; this one differs on each.
    generator = torch.Generator().manual_seed(epoch * dist.get_world_size() + dist.get_rank())
    for group in optimizer.param_groups:  # the rate falls along a cosine
        group["lr"] = settings.learning_rate * (0.5 + 0.5 * math.cos(math.pi * (epoch - 1) / settings.epochs))
    precision = PRECISIONS[settings.precision]
    total = torch.zeros(3, dtype=torch.float64, device=device)
    for images, labels in batches(loader, device):
        images = shifted(images, generator)
        optimizer.zero_grad()
        pieces = torch.arange(len(labels)).chunk(settings.accumulate)
        for piece in pieces:
            # Gradients add up here, and go to the other processes with the last piece.
            with nullcontext() if piece is pieces[-1] else model.no_sync():
                with torch.autocast(device.type, precision, enabled=precision is not None):
                    outputs = model(images[piece])
                    loss = cross_entropy(outputs, labels[piece])
                scaler.scale(loss * len(piece) / len(labels)).backward()
            total += sums(loss, outputs, labels[piece])
        scaler.step(optimizer)
        scaler.update()
    return means(total)


@record  # torchrun shows the traceback of the first process that failed
def main():
    parser = options("Train a residual network with DDP.")
    parser.add_argument("--accumulate", type=more_than(0, int), default=1, help="pieces to cut a batch into")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--recompute", action="store_true", help="gradient checkpointing")
    settings = parser.parse_args()
    folder = settings.checkpoint_dir
    device = setup_distributed(settings.device, settings.timeout)
    loader, test_loader, shape = load_data(settings)

    torch.manual_seed(0)  # the same first parameters on all ranks
    model = DistributedDataParallel(SmallResNet(*shape, settings.recompute).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9)
    # Small gradients vanish in float16, unless the loss is scaled up before.
    scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
    warm_up(model, loader.dataset[0][0], device)
    parts = {"model": model.module, "optimizer": optimizer, "scaler": scaler}  # what a checkpoint holds
    history = load_checkpoint(folder, "checkpoint_epoch_", parts, settings.resume).get("history", [])
    if first := len(history):
        say_once(f"Resuming after epoch {first}")

    for epoch in range(first + 1, settings.epochs + 1):
        start = time.monotonic()
        train = train_epoch(model, optimizer, scaler, loader, epoch, device, settings)
        test = evaluate(model.module, test_loader, device)
        history.append(log_epoch(epoch, train, test, time.monotonic() - start))
        on_rank_0(save_checkpoint, folder, parts, history)

    on_rank_0(draw_curves, folder, history)
    log_end(model.module, steps=(len(history) - first) * len(loader), loss=f"{history[-1]['train_loss']:.4f}")


if __name__ == "__main__":
    main()
    if dist.is_initialized():  # not after --help
        dist.destroy_process_group()
