"""What the ranks of train_traffic.py share: they join, agree and end together, and write files that are whole."""

import logging
import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group: imported later, it would keep the group alive

HOST = os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def join(timeout):
    """Join the other tasks, and wait `timeout` seconds at most for a lost one; return the device to compute on."""
    env = os.environ
    if "SLURM_JOB_ID" in env and "SLURM_STEP_ID" not in env:
        print("error: in a job, start this program with srun, which starts a task on each node", file=sys.stderr)
        sys.exit(2)
    # The job script cannot export these: in it, SLURM_PROCID and SLURM_LOCALID are 0.
    env["RANK"] = env.get("SLURM_PROCID", "0")
    env["LOCAL_RANK"] = env.get("SLURM_LOCALID", "0")
    env["WORLD_SIZE"] = env.get("SLURM_NTASKS", "1")
    env.setdefault("MASTER_ADDR", env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"))
    env.setdefault("MASTER_PORT", str(25000 + int(env.get("SLURM_JOB_ID", "4500")) % 7000))
    if "OMP_NUM_THREADS" not in env:
        torch.set_num_threads(int(env.get("SLURM_CPUS_PER_TASK", "1")))
    backend = env.get("BACKEND", "gloo")
    gpus = torch.cuda.device_count() if backend == "nccl" else 0
    dist.init_process_group("nccl" if gpus else "gloo", timeout=timedelta(seconds=timeout))
    if backend != dist.get_backend():
        fail(f"BACKEND is {backend!r}: give gloo, or nccl on nodes where PyTorch sees GPUs")
    device = torch.device("cuda", int(env["LOCAL_RANK"]) % gpus) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    return device


def say(line, stream=None):
    """Print a line, and keep it in the log of this rank if that is open."""
    print(f"{line}\n", end="", file=stream, flush=True)  # in one piece: all ranks print into one file
    logging.info(line)


def say_once(line):
    """Let rank 0 say a line."""
    if dist.get_rank() == 0:
        say(line)


def gather(value):
    """Return the values of all ranks, in their order."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def fail(problem):
    """End all ranks with status 2; rank 0 says why. All ranks call this, so that none waits for another."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # srun terminates the rest when the first has ended
    if dist.get_rank() == 0:
        say(f"error: {problem}", sys.stderr)
    dist.barrier()
    os._exit(2)  # at once: while Python shuts down, a thread of gloo may abort the process


def on_rank_0(function, *arguments):
    """Call a function on rank 0; return its result on all ranks, or end them all with its error."""
    outcome = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = function(*arguments)
        except (ValueError, OSError) as error:
            outcome[1] = str(error)
    dist.broadcast_object_list(outcome, src=0)
    result, problem = outcome
    if problem:
        fail(problem)
    return result


def write_whole(path, content):
    """Write a file that is there whole or not at all: a job may be killed, and a disk may be full."""
    job = os.environ.get("SLURM_JOB_ID", os.getpid())  # another may be writing this file, too
    beside = path.with_name(f".{path.name}.{job}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error.strerror}") from None
