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
Needs train_distributed.py, processes.py and image_data.py beside it.
"""

import math
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

early = []
# Now: importing torch takes seconds. And torchrun passes a second SIGUSR1 on as SIGTERM.
signal.signal(signal.SIGUSR1, lambda *got: (early.append(got[0]), signal.signal(signal.SIGTERM, signal.SIG_IGN)))

import torch
import torch.distributed as dist
from image_data import batches
from processes import check, everybody, from_rank_0, leave, say_once, write_whole
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader
from train_distributed import (
    SimpleConvNet,
    checkpoints,
    conclude,
    count,
    evaluate,
    load_newest,
    means,
    options,
    prepare,
    restore,
    train_step,
)

from srunbook.signals import EXIT_DO_NOT_REQUEUE, EXIT_STOPPED, StopSignal

NOTES = os.environ.get("JOB_NOTES", "")  # what the job script's files begin with


def rest_of_epoch(loader, epoch, done):
    """Return the batches of this rank that are left of an epoch, on whatever number of ranks it began."""
    order = torch.randperm(len(loader.dataset), generator=torch.Generator().manual_seed(epoch))  # the sampler's order
    left = order[done:].tolist()
    rank, world = dist.get_rank(), dist.get_world_size()
    step = loader.batch_size * world
    mine = left[rank : len(left) // step * step : world]  # as many on each rank
    workers, pinned = loader.num_workers, loader.pin_memory
    return DataLoader(loader.dataset, loader.batch_size, sampler=mine, num_workers=workers, pin_memory=pinned)


def save(folder, model, optimizer, total, progress):
    """Write the checkpoint of this step, unless a value in it is not finite, and delete all but the newest two."""
    total = total.clone()
    dist.all_reduce(total)
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "sums": total, **progress}
    momentum = {f"momentum.{n}": one["momentum_buffer"] for n, one in state["optimizer"]["state"].items()}
    spoiled = [name for name, value in (state["model"] | momentum).items() if not value.isfinite().all()]
    found = everybody(spoiled)  # the same on all ranks
    if any(found):
        give_up(f"after step {progress['step']}, not all of {max(found)[0]} is finite")

    def write():
        write_whole(folder / f"step_{progress['step']:08}.pt", lambda file: torch.save(state, file))
        for old in checkpoints(folder, "step_")[:-2]:
            old.unlink()
        if NOTES:
            Path(f"{NOTES}.starts").unlink(missing_ok=True)  # this start was of use

    from_rank_0(write)


def tell_status(status):
    """Tell the job script the exit status."""
    if NOTES and dist.get_rank() == 0:
        with suppress(OSError):  # a full disk must not keep the job from its requeue
            Path(f"{NOTES}.status").write_text(f"{status}\n", encoding="ascii")


def give_up(reason):
    """End a training that would fail again."""
    if dist.get_rank() == 0:
        print(f"error: {reason}: a restart would not help", file=sys.stderr, flush=True)
    tell_status(EXIT_DO_NOT_REQUEUE)
    leave(EXIT_DO_NOT_REQUEUE)


@record  # torchrun shows the traceback of the first process that failed
def main():
    parser = options("Train a small network that continues after an interruption.")
    parser.add_argument("--save-every", type=count, default=50, help="steps from save to save")
    settings = parser.parse_args()
    device, model, optimizer, loader, test_loader = prepare(settings, SimpleConvNet)
    folder, world = settings.checkpoint_dir, dist.get_world_size()

    # How far the training has got. `images` are those of this epoch that are done, by all ranks.
    progress = {"step": 0, "epoch": 1, "images": 0, "batch_size": settings.batch_size}
    total = torch.zeros(3, dtype=torch.float64, device=device)  # losses, right answers and images of this epoch
    parts = {"model": model.module, "optimizer": optimizer}
    if state := from_rank_0(lambda: load_newest(folder, "step_", [*parts, "sums", *progress])):
        begun = state["batch_size"]
        check(begun == settings.batch_size, f"this training was begun with --batch-size {begun}")
        restore(folder, state, parts)
        progress = {name: state[name] for name in progress}
        if dist.get_rank() == 0:
            total += state["sums"].to(device)
        say_once(f"Resuming after step {progress['step']}")
    first = progress["step"]

    with StopSignal() as stop:
        for number in early:
            signal.raise_signal(number)
        while progress["epoch"] <= settings.epochs:
            model.train()
            for images, labels in batches(rest_of_epoch(loader, progress["epoch"], progress["images"]), device):
                total += train_step(model, optimizer, images, labels)
                progress["step"] += 1
                progress["images"] += len(images) * world
                stopped = stop.requested()  # the same answer on all ranks
                if stopped or progress["step"] % settings.save_every == 0:
                    save(folder, model, optimizer, total, progress)
                if stopped:
                    say_once(f"Stopping after step {progress['step']}: {stop.signal.name}")
                    tell_status(EXIT_STOPPED)
                    stop.leave()  # rank 0 puts the job back into the queue
            loss, accuracy = means(total)
            _, test_accuracy = evaluate(model.module, test_loader, device)
            shown = f"Avg Loss: {loss:.6f}, Accuracy: {accuracy:.2%}, Test Accuracy: {test_accuracy:.2%}"
            say_once(f"Epoch {progress['epoch']} - {shown}")
            if not math.isfinite(loss):
                give_up(f"the loss of epoch {progress['epoch']} is {loss}")
            progress |= {"epoch": progress["epoch"] + 1, "images": 0}
            total.zero_()
        save(folder, model, optimizer, total, progress)
    conclude(model.module, steps=progress["step"] - first)


if __name__ == "__main__":
    main()
    if dist.is_initialized():  # not after --help
        dist.destroy_process_group()
