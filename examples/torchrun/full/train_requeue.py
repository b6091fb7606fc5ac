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
Needs train_distributed.py, image_data.py, processes.py and files.py beside it.
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
from files import checkpoints, load_checkpoint, write_whole
from image_data import batches, load_data
from processes import fail, on_rank_0, say_once, setup_distributed
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from train_distributed import SimpleConvNet, evaluate, log_end, means, more_than, options, sums, warm_up

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


def save_step(folder, parts, total, progress):
    """Write the checkpoint of this step, and keep the newest two; if a value is not finite, return its name instead."""
    state = {name: part.state_dict() for name, part in parts.items()} | {"sums": total, **progress}
    momentum = {f"momentum.{n}": each["momentum_buffer"] for n, each in state["optimizer"]["state"].items()}
    for name, value in (state["model"] | momentum).items():
        if not value.isfinite().all():
            return name
    write_whole(folder / f"step_{progress['step']:08}.pt", lambda file: torch.save(state, file))
    for path in checkpoints(folder, "step_")[:-2]:
        path.unlink()
    if NOTES:
        Path(f"{NOTES}.starts").unlink(missing_ok=True)  # this start was of use
    return None


def save(folder, parts, total, progress):
    """Save this step, or give up if a value is not finite."""
    total = total.clone()
    dist.all_reduce(total)
    if spoiled := on_rank_0(save_step, folder, parts, total, progress):
        give_up(f"after step {progress['step']}, not all of {spoiled} is finite")


def tell_status(status):
    """Tell the job script the exit status."""
    if NOTES and dist.get_rank() == 0:
        with suppress(OSError):  # a full disk must not keep the job from its requeue
            Path(f"{NOTES}.status").write_text(f"{status}\n", encoding="ascii")


def give_up(reason):
    """End a training that would fail again: like `fail`, but with status 78."""
    tell_status(EXIT_DO_NOT_REQUEUE)
    if dist.get_rank() == 0:
        print(f"error: {reason}: a restart would not help", file=sys.stderr, flush=True)
    dist.barrier()
    os._exit(EXIT_DO_NOT_REQUEUE)


@record  # torchrun shows the traceback of the first process that failed
def main():
    parser = options("Train a small network that continues after an interruption.")
    parser.add_argument("--save-every", type=more_than(0, int), default=50, help="steps from save to save")
    settings = parser.parse_args()
    folder = settings.checkpoint_dir
    device = setup_distributed(settings.device, settings.timeout)
    loader, test_loader, shape = load_data(settings)

    torch.manual_seed(0)  # the same first parameters on all ranks
    model = DistributedDataParallel(SimpleConvNet(*shape).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9)
    warm_up(model, loader.dataset[0][0], device)

    # How far the training has got. `images` are those of this epoch that are done, by all ranks.
    progress = {"step": 0, "epoch": 1, "images": 0, "batch_size": settings.batch_size}
    total = torch.zeros(3, dtype=torch.float64, device=device)  # losses, right answers and images of this epoch
    parts = {"model": model.module, "optimizer": optimizer}
    if state := load_checkpoint(folder, "step_", parts):
        if state["batch_size"] != settings.batch_size:
            fail(f"this training was begun with --batch-size {state['batch_size']}")
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
                optimizer.zero_grad()
                outputs = model(images)
                loss = cross_entropy(outputs, labels)
                loss.backward()
                optimizer.step()
                total += sums(loss, outputs, labels)
                progress["step"] += 1
                progress["images"] += len(images) * dist.get_world_size()
                stopped = stop.requested()  # the same answer on all ranks
                if stopped or progress["step"] % settings.save_every == 0:
                    save(folder, parts, total, progress)
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
        save(folder, parts, total, progress)
    log_end(model.module, steps=progress["step"] - first)


if __name__ == "__main__":
    main()
    if dist.is_initialized():  # not after --help
        dist.destroy_process_group()
