"""What the four programs share: model, data, the order of the samples, and what is kept of a run.

Imported by one_process.py, srun_ddp.py, torchrun_ddp.py and lightning_ddp.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or the group never ends
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES = 32, 5
SAMPLES, GLOBAL_BATCH, EPOCHS = 1024, 64, 3
LEARNING_RATE = 0.1


def make_model() -> nn.Module:
    """Return a model with the same first parameters in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, CLASSES))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum."""
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)


class GlobalBatches:
    """The batches of one rank: of each batch of all, every world-th sample.

    So all ranks together take at each step what one process would take, in each epoch
    in another order.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.epoch = rank, world, 0

    def __len__(self) -> int:
        return SAMPLES // GLOBAL_BATCH

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(SAMPLES, generator=generator).tolist()
        self.epoch += 1
        for first in range(0, SAMPLES, GLOBAL_BATCH):
            yield order[first + self.rank : first + GLOBAL_BATCH : self.world]


def make_loader(rank: int, world: int) -> DataLoader:
    """Load points whose class a fixed random network decides."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(SAMPLES, FEATURES, generator=generator)
    labels = torch.tanh(points @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1)
    return DataLoader(TensorDataset(points, labels), batch_sampler=GlobalBatches(rank, world))


def keep(model: nn.Module, losses: list[float], rank: int) -> None:
    """Print the first and the last loss, and save the run in the file that the command names."""
    if rank != 0:
        return
    sys.stdout.write(f"{len(losses)} steps: loss {losses[0]:.6f} to {losses[-1]:.6f}\n")
    sys.stdout.flush()
    if len(sys.argv) > 1:
        parameters = torch.cat([value.detach().flatten() for value in model.parameters()])
        torch.save({"losses": torch.tensor(losses, dtype=torch.float64), "parameters": parameters}, Path(sys.argv[1]))


def leave() -> None:
    """End the process group, and with it the threads of gloo, which may abort a process that ends before them.

    Its model has to be freed by then: with it, the process could wait for these threads for ever.
    """
    dist.destroy_process_group()
