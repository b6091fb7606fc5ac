"""Training that a time limit, a preemption or a dead node only interrupts.

    torchrun --standalone --nproc-per-node 2 train_requeue.py
    srunbook simulate --nodes 2 -- torchrun --nnodes 2 --nproc-per-node 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 train_requeue.py --checkpoint-dir requeue_two_nodes
    sbatch run_requeue.sbatch

Like train_distributed.py, but it saves within an epoch, stops at a signal, and continues
from the newest checkpoint at the very step. This one program needs `srunbook`:
`StopSignal` lets all ranks stop at the same step.

Its exit status: 0 finished, 75 stopped by a signal and saved, 78 a restart would not help.
The launcher ends with 1 instead, so rank 0 writes the status into a file for the job script.
Needs train_distributed.py, processes.py, image_data.py and epoch_files.py beside it.
"""

from __future__ import annotations

import io
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

early: list[int] = []
signal.signal(signal.SIGUSR1, lambda number, _: early.append(number))  # now: importing torch takes seconds

import torch
import torch.distributed as dist
from epoch_files import load_newest, write_whole
from processes import conclude, from_rank_0, leave, one_voice, run, say_once
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from train_distributed import SEED, Parser, SimpleConvNet, Training, evaluate, floats, positive, prepare, sums

from srunbook.signals import EXIT_DO_NOT_REQUEUE, EXIT_STOPPED, StopSignal

NOTES = os.environ.get("JOB_NOTES", "")  # what the job script's files begin with


class Progress:
    """How far a training has got: everything that a checkpoint holds."""

    def __init__(self, training: Training) -> None:
        self.training, self.folder = training, training.settings.checkpoint_dir
        self.step = 0  # steps made since the first start
        self.epoch, self.images = 1, 0  # how many images of this epoch are done, by all ranks
        self.sums = self.zeros()  # [losses, right answers, images] of this epoch so far

    def zeros(self) -> torch.Tensor:
        return torch.zeros(3, dtype=torch.float64, device=self.training.device)

    def save(self) -> None:
        """Write the checkpoint of this step, unless a value in it is not finite, and delete all but the newest two."""
        total = self.sums.clone()
        dist.all_reduce(total)
        model, optimizer = self.training.model.module.state_dict(), self.training.optimizer.state_dict()
        values = {**model, **{f"momentum.{n}": one["momentum_buffer"] for n, one in optimizer["state"].items()}}
        spoiled = [name for name, value in values.items() if not value.isfinite().all()]
        found = [spoiled] * dist.get_world_size()
        dist.all_gather_object(found, spoiled)  # the same answer on all ranks
        if any(found):
            give_up(f"after step {self.step}, not all of {max(found)[0]} is finite")
        with one_voice():
            if dist.get_rank() == 0:
                state = {"model": model, "optimizer": optimizer, "sums": total, "step": self.step, "epoch": self.epoch}
                state |= {"images": self.images, "batch_size": self.training.settings.batch_size}
                buffer = io.BytesIO()
                torch.save(state, buffer)
                write_whole(self.folder / f"step_{self.step:08}.pt", buffer.getvalue())
                for old in sorted(self.folder.glob("step_*.pt"))[:-2]:
                    old.unlink()
                if NOTES:
                    Path(f"{NOTES}.starts").unlink(missing_ok=True)  # this start was of use

    def newest(self) -> dict[str, Any] | None:
        """Read the newest whole checkpoint; rank 0 calls this."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return load_newest(sorted(self.folder.glob("step_*.pt")))

    def restore(self) -> None:
        """Load the newest whole checkpoint if there is one."""
        state = from_rank_0(self.newest)
        if state is None:
            return
        with one_voice():
            if state["batch_size"] != self.training.settings.batch_size:
                raise ValueError(f"this training was begun with --batch-size {state['batch_size']}")
        self.step, self.epoch, self.images = state["step"], state["epoch"], state["images"]
        if dist.get_rank() == 0:
            self.sums += state["sums"].to(self.sums.device)
        say_once(f"Resuming after step {self.step}")
        self.training.model.module.load_state_dict(state["model"])
        self.training.optimizer.load_state_dict(state["optimizer"])


def rest_of_epoch(progress: Progress) -> DataLoader:
    """Return the batches of this rank that are left of an epoch, on whatever number of ranks it began."""
    loader = progress.training.loader
    world = dist.get_world_size()
    order = torch.randperm(len(loader.dataset), generator=torch.Generator().manual_seed(SEED + progress.epoch))
    left = order[progress.images :].tolist()
    whole = len(left) // (loader.batch_size * world) * loader.batch_size * world  # as many on each rank
    workers, pinned = loader.num_workers, loader.pin_memory
    mine = left[dist.get_rank() : whole : world]
    return DataLoader(loader.dataset, loader.batch_size, sampler=mine, num_workers=workers, pin_memory=pinned)


def train_step(training: Training, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Make one step; return what it adds to the metrics."""
    training.model.train()
    labels = labels.to(training.device, non_blocking=True)
    training.optimizer.zero_grad()
    outputs = training.model(floats(images, training.device))
    loss = cross_entropy(outputs, labels)
    loss.backward()
    training.optimizer.step()
    return sums(loss, outputs, labels)


def tell_status(status: int) -> None:
    """Tell the job script the exit status."""
    if NOTES and dist.get_rank() == 0:
        Path(f"{NOTES}.status").write_text(f"{status}\n", encoding="ascii")


def give_up(reason: str) -> NoReturn:
    """End a training that would fail again."""
    if dist.get_rank() == 0:
        print(f"error: {reason}: a restart would not help", file=sys.stderr, flush=True)
    tell_status(EXIT_DO_NOT_REQUEUE)
    leave(EXIT_DO_NOT_REQUEUE)


def end_epoch(progress: Progress) -> None:
    """Print the metrics of an epoch, and begin the next one."""
    dist.all_reduce(progress.sums)
    total, right, count = progress.sums.tolist()
    progress.sums = progress.zeros()
    _, test_accuracy = evaluate(progress.training)
    shown = f"Avg Loss: {total / count:.6f}, Accuracy: {right / count:.2%}, Test Accuracy: {test_accuracy:.2%}"
    say_once(f"Epoch {progress.epoch} - {shown}")
    if not math.isfinite(total):
        give_up(f"the loss of epoch {progress.epoch} is {total / count}")
    progress.epoch, progress.images = progress.epoch + 1, 0


def train(progress: Progress, stop: StopSignal, save_every: int) -> None:
    """Train from where `progress` is to the last step, or to a signal."""
    training = progress.training
    while progress.epoch <= training.settings.epochs:
        loader = rest_of_epoch(progress)
        for number, (images, labels) in enumerate(loader, 1):
            progress.sums += train_step(training, images, labels)
            progress.step += 1
            progress.images += len(images) * dist.get_world_size()
            if number == len(loader):
                end_epoch(progress)
            finished = progress.epoch > training.settings.epochs
            stopped = stop.requested()  # the same answer on all ranks
            if stopped or finished or progress.step % save_every == 0:
                progress.save()
            if stopped and not finished:
                say_once(f"Stopping after step {progress.step}: {stop.signal.name}")
                tell_status(EXIT_STOPPED)
                stop.leave()  # rank 0 puts the job back into the queue
        if not len(loader):  # a step of these ranks is more than what is left
            end_epoch(progress)


def main() -> None:
    parser = Parser("Train a small network that continues after an interruption.")
    parser.add_argument("--save-every", type=positive(int), default=50, help="steps from save to save")
    settings = parser.parse_args()
    training = prepare(settings, SimpleConvNet)
    progress = Progress(training)
    progress.restore()
    first = progress.step
    with StopSignal() as stop:
        for number in early:
            signal.raise_signal(number)
        train(progress, stop, settings.save_every)
    conclude(training.model.module, steps=progress.step - first)


if __name__ == "__main__":
    run(main)
