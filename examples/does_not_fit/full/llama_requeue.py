"""Train a Llama with FSDP for days: compiled, saved in the background, continued after each time limit.

    torchrun --standalone --nproc-per-node 4 llama_requeue.py weights
    sbatch --job-name=llama requeue.sbatch llama_requeue.py weights

The folder holds config.json and *.safetensors, as from Hugging Face. A folder "weights" is made if there is none, with
a small random model. tokens.bin holds your text as tokens of 32 bits each; without it, stand-in tokens are used.
Checkpoints go to checkpoints/requeue-NAME, where NAME is the job's, and the trained model to trained-NAME.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

signals = []  # from Slurm: SIGUSR1 before the time limit, SIGTERM at a preemption
for number in (signal.SIGUSR1, signal.SIGTERM):  # now: importing torch takes seconds
    signal.signal(number, lambda number, _: signals.append(number))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.nn  # before init_process_group, or its threads never end
from llama import Llama, make_small, read_config
from pretrained import load, save, weights
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

LENGTH = 32  # tokens of a sequence
BATCH_SIZE = 32  # sequences, of all ranks together
STEPS = 40
SAVE_EVERY = 10  # steps
PEAK = 989e12  # EDIT: operations that your GPU can do in a second, in 16 bits; this is an H100
RUN = os.environ.get("SLURM_JOB_NAME", "run").replace("/", "-")  # sbatch --job-name=NAME starts another
if "SLURM_ARRAY_TASK_ID" in os.environ:  # each member of an array trains its own model
    RUN += "-" + os.environ["SLURM_ARRAY_TASK_ID"]
CHECKPOINTS = Path("checkpoints", f"requeue-{RUN}")  # in a folder that all nodes see; delete it to start over
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # the optimizer's numbers, by parameter: fits any layout
PRECISION = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)


def refuse(message, status=2):
    """End all ranks; one of them says why."""
    if dist.get_rank() == 0:
        print(f"error: {message}", file=sys.stderr)
    dist.barrier()
    sys.exit(status)


def kept():
    """Return the folders of whole checkpoints, oldest first."""
    return sorted(path for path in CHECKPOINTS.glob("*") if path.name.isdigit())


def state_of(model, optimizer, step):
    """Return all that changes during training, each rank its parts."""
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer, options=BY_NAME), strict=True), step=step)


class Saver:
    """Writes checkpoints in a thread, while the training goes on."""

    def __init__(self):
        self.group = dist.new_group(backend="gloo")  # the thread's own, for what it sends
        self.thread, self.pending = ThreadPoolExecutor(1), None

    def start(self, model, optimizer, step):
        """Copy the state, and start to write it."""
        self.finish()
        beside = CHECKPOINTS / "unfinished"
        written = dcp.async_save(state_of(model, optimizer, step), checkpoint_id=beside, process_group=self.group)
        self.pending = self.thread.submit(self.complete, written, beside, step)

    def complete(self, written, beside, step):
        """Once all ranks have written, give the folder its name, and delete all but the newest two."""
        written.result()
        if dist.get_rank() == 0:
            beside.rename(CHECKPOINTS / f"{step:08}")
            for old in kept()[:-2]:
                shutil.rmtree(old)

    def finish(self):
        """Wait for the checkpoint that is being written."""
        failed = [None]
        try:
            if self.pending:
                self.pending.result()
        except dcp.CheckpointException as error:
            failed = [next(iter(error.failures.values()))[0]]
        except OSError as error:
            failed = [error]
        dist.broadcast_object_list(failed)
        if failed[0]:
            refuse(f"cannot save in {CHECKPOINTS}: {failed[0]}; make room there, then submit the job again", 1)


def resume(model, optimizer):
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
    state = state_of(model, optimizer, 0)  # says what to read, and where to put it
    try:
        dcp.load(state, checkpoint_id=newest[0])
    except dcp.CheckpointException as error:
        reason, _ = next(iter(error.failures.values()))
        refuse(f"cannot load {newest[0]}: {reason}; rename it to continue from the one before")
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=BY_NAME
    )
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
    folder = sys.argv[1]
    if rank == 0 and folder == "weights" and not Path(folder).exists():
        make_small(folder)
    dist.barrier()
    config = read_config(folder)

    with torch.device("meta"):  # shapes without memory
        model = Llama(config)
    for block in model.model.layers:
        block.compile(backend="inductor" if cuda else "aot_eager")  # the second needs no C++ compiler
        fully_shard(block, mp_policy=PRECISION)
    fully_shard(model, mp_policy=PRECISION)  # what is left: embedding, last norm, and head
    model.to_empty(device=device)  # memory for the parts of this rank
    model.model.set_buffers()
    load(model, folder)  # each rank reads its parts
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

    tokens = Path("tokens.bin")
    if tokens.exists():
        text = torch.from_file(str(tokens), size=tokens.stat().st_size // 4, dtype=torch.int32)  # not read as a whole
    else:
        text = torch.arange(100_000).square() % config.vocab_size
    matrices = sum(weight.numel() for weight in weights(model).values() if weight.dim() > 1)
    if not config.tie_word_embeddings:
        matrices -= config.vocab_size * config.hidden_size  # looking a token up is no work
    work = 6 * (matrices + config.num_hidden_layers * config.hidden_size * LENGTH)  # operations for each token
    saver = Saver()
    done, start = resume(model, optimizer), time.perf_counter()
    for step in range(done + 1, STEPS + 1):
        draw = torch.Generator().manual_seed(step)  # nothing to save: the step says which batch it is
        starts = torch.randint(len(text) - LENGTH, (BATCH_SIZE, 1), generator=draw)
        places = starts[rank::world_size] + torch.arange(LENGTH)  # the share of this rank
        x, y = text[places].long().to(device), text[places + 1].long().to(device)
        torch.manual_seed(step * world_size + rank)  # of dropout
        optimizer.zero_grad()
        loss = cross_entropy(model(x).flatten(0, 1).float(), y.flatten(), reduction="sum") / BATCH_SIZE / LENGTH
        (loss * world_size).backward()  # the ranks average their gradients, and the loss is a sum
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        if step % 10 == 0:
            dist.all_reduce(loss.detach_())
            rate = BATCH_SIZE * LENGTH * min(10, step - done) / (time.perf_counter() - start)
            start = time.perf_counter()
            if rank == 0:
                used = f", MFU {rate * work / PEAK / world_size:.1%}" if cuda else ""
                print(f"step {step}: {rate:.0f} tokens/s{used}, loss {loss.item():.6f}")
        stop = agreed(bool(signals), device)
        if stop or step % SAVE_EVERY == 0:
            saver.start(model, optimizer, step)
        if stop:
            saver.finish()
            again = agreed(signal.SIGUSR1 in signals, device)  # SIGTERM alone may come from scancel
            if rank == 0:
                print(f"stopped after step {step}")
                if again:
                    requeue()
            dist.barrier()
            return

    saver.finish()
    save(model, folder, f"trained-{RUN}")
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
