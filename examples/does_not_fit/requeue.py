"""Train a small GPT with FSDP, on all GPUs of all nodes, or on CPUs, and continue after a time limit.

    torchrun --standalone --nproc-per-node 4 requeue.py
    sbatch requeue.sbatch

Each rank saves its part in checkpoints/requeue-NAME, where NAME is the job's; the trained model goes to model-NAME.pt.
"""

import fcntl
import io
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

signals = []  # from Slurm: SIGUSR1 before the time limit, SIGTERM at a preemption
for number in (signal.SIGUSR1, signal.SIGTERM):  # now: importing torch takes seconds
    signal.signal(number, lambda number, _: signals.append(number))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.nn  # before init_process_group, or its threads never end
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

# Stand-in text: sums of two numbers. Put your own text here.
TEXT = "".join(f"{a}+{b}={a + b}\n" for a in range(100) for b in range(100))
CHARACTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS = 64, 4, 4
CONTEXT = 32  # characters that the model sees at once
BATCH_SIZE = 32  # of all ranks together
STEPS = 40
SAVE_EVERY = 10  # steps
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINTS = Path("checkpoints", f"requeue-{RUN}")  # in a folder that all nodes see; delete it to start over
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # the optimizer's numbers, by parameter: fits any layout
PRECISION = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)


class Embedding(nn.Module):
    """A vector for each character, and one for its place."""

    def __init__(self):
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)

    def forward(self, x):
        return self.characters(x) + self.places(torch.arange(x.size(1), device=x.device))


class Attention(nn.Module):
    """What each character takes from those before it."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = [layer(x).unflatten(2, (-1, WIDTH // HEADS)) for layer in (self.query, self.key, self.value)]
        x = scaled_dot_product_attention(*(head.transpose(1, 2) for head in heads), is_causal=True)
        return self.out(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then two layers; each adds to what came in."""

    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm2(x))))


def gpt():
    blocks = [Block() for _ in range(LAYERS)]
    return nn.Sequential(Embedding(), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(CHARACTERS), bias=False))


def refuse(message, status=2):
    """End all ranks; one of them says why."""
    if dist.get_rank() == 0:
        print(f"error: {message}", file=sys.stderr)
    dist.barrier()
    sys.exit(status)


def kept():
    """Return the folders of whole checkpoints, oldest first."""
    folders = (path for path in CHECKPOINTS.glob("*") if path.name.isdigit())
    return sorted(folders, key=lambda path: int(path.name))


class Reader(dcp.FileSystemReader):
    """Compares each part with the checksums that torch.save put into it; torch.load does not."""

    def read_metadata(self):
        try:
            return super().read_metadata()
        except Exception as error:
            sys.exit(f".metadata: {error}")  # dcp.load catches this as well, and prints no tracebacks of it

    def read_data(self, plan, planner):  # an error on one rank ends all
        for item in plan.items:
            part = self.storage_data[item.storage_index]
            with (self.path / part.relative_path).open("rb") as file:
                file.seek(part.offset)
                if zipfile.ZipFile(io.BytesIO(file.read(part.length))).testzip():
                    raise ValueError(f"bytes have changed in {part.relative_path}")
        return super().read_data(plan, planner)


def state_of(model, optimizer, batches, step):
    """Return all that changes during training, each rank its parts."""
    parts = get_state_dict(model, optimizer, options=BY_NAME)
    return {"model": parts[0], "optimizer": parts[1], "batches": batches.get_state(), "step": step}


def save(model, optimizer, batches, step):
    """Write a new folder; once it is whole, give it its name and delete all but the newest two."""
    beside, failed = CHECKPOINTS / "unfinished", [None]
    state = state_of(model, optimizer, batches, step)
    try:
        dcp.save(state, checkpoint_id=beside)  # returns when all ranks have written, or fails on all
        if dist.get_rank() == 0:
            beside.rename(CHECKPOINTS / f"{step:06}")
            for old in kept()[:-2]:
                shutil.rmtree(old)
    except dcp.CheckpointException as error:
        failed = [next(iter(error.failures.values()))[0]]
    except OSError as error:
        failed = [error]
    dist.broadcast_object_list(failed)
    if failed[0]:
        refuse(f"cannot save in {CHECKPOINTS}: {failed[0]}; make room there, then submit the job again", 1)


def load(model, optimizer, batches):
    """Read the newest checkpoint if there is one; return its step."""
    newest = kept()[-1:] or [None]
    if dist.get_rank() == 0:
        try:
            CHECKPOINTS.parent.mkdir(exist_ok=True)
            lock = os.open(f"{CHECKPOINTS}.lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
            shutil.rmtree(CHECKPOINTS / "unfinished", ignore_errors=True)  # of a run that was killed
        except BlockingIOError:
            newest = ["locked"]
        except OSError:  # a file system without locks, or one that nobody can write to
            pass
    dist.broadcast_object_list(newest)  # other nodes may see a new folder later
    if newest[0] == "locked":
        refuse(f"another job is training in {CHECKPOINTS}: wait for it, or give this one another --job-name")
    if newest[0] is None:
        return 0
    state = state_of(model, optimizer, batches, 0)  # says what to read, and where to put it
    try:
        dcp.load(state, storage_reader=Reader(newest[0]))
    except dcp.CheckpointException as error:
        reason, _ = next(iter(error.failures.values()))
        refuse(f"cannot load {newest[0]}: {reason}; rename it to continue from the one before")
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=BY_NAME
    )
    batches.set_state(state["batches"])
    if dist.get_rank() == 0:
        print(f"resumed after step {state['step']}")
    return state["step"]


def agreed(heard, device):
    """Tell whether a signal has reached any rank: it arrives at different times."""
    count = torch.tensor(int(heard), device=device)
    dist.all_reduce(count)
    return count.item() > 0


def requeue():
    """Ask Slurm to put this job back into the queue; it ends the job at once."""
    job = os.environ.get("SLURM_JOB_ID")
    if "SLURM_ARRAY_TASK_ID" in os.environ:  # this member alone, not the whole array
        job = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}".format_map(os.environ)
    if job and shutil.which("scontrol"):
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a second one would end scontrol, which inherits this
        subprocess.run(["scontrol", "requeue", job], check=True)
    else:  # outside of Slurm, or in a container without its commands
        print("saved; to continue, submit the job again")


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")
    if rank == 0 and not cuda and int(os.environ.get("SLURM_GPUS_ON_NODE", 0)):
        print("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs")

    torch.manual_seed(0)
    with torch.device("meta"):  # shapes without memory
        model = gpt()
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mp_policy=PRECISION)
    fully_shard(model)  # what is left: the first layer and the last ones, in 32 bits
    model.to_empty(device=device)  # memory for the parts of this rank
    weights = gpt().state_dict() if rank == 0 else {}
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    text = torch.tensor([CHARACTERS.index(character) for character in TEXT])
    batches = torch.Generator().manual_seed(0)  # the same batches on all ranks
    done = load(model, optimizer, batches)
    for step in range(done + 1, STEPS + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=batches)
        places = starts[rank::world_size] + torch.arange(CONTEXT)  # the share of this rank
        x, y = text[places].to(device), text[places + 1].to(device)
        optimizer.zero_grad()
        loss = cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum") / BATCH_SIZE / CONTEXT
        (loss * world_size).backward()  # the ranks average their gradients, and the loss is a sum
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 10 == 0:
            dist.all_reduce(loss.detach_())
            if rank == 0:
                print(f"step {step}: loss {loss.item():.6f}")
        stop = agreed(bool(signals), device)
        if stop or step % SAVE_EVERY == 0:
            save(model, optimizer, batches, step)
        if stop:
            again = agreed(signal.SIGUSR1 in signals, device)  # SIGTERM alone may come from scancel
            if rank == 0:
                print(f"stopped after step {step}")
                if again:
                    requeue()
            dist.barrier()
            return

    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        try:
            torch.save(whole, f"model-{RUN}.tmp")
            Path(f"model-{RUN}.tmp").replace(f"model-{RUN}.pt")  # whole or not at all
        except (OSError, RuntimeError) as error:
            sys.exit(f"error: cannot save model-{RUN}.pt: {error}; make room there, then submit the job again")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
