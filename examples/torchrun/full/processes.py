"""What the programs share: processes that join, agree and end together, and files that are whole or absent."""

import atexit
import io
import os
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end


def setup_distributed(wanted, timeout):
    """Join the other processes, check that they are what Slurm allotted, and return the device to compute on."""
    if "RANK" not in os.environ:
        command = f"torchrun --standalone --nproc-per-node 2 {sys.argv[0]}"
        print(f"error: RANK is not set. Start this program with torchrun: {command}", file=sys.stderr)
        sys.exit(2)
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines: all write to one log
    cuda = wanted != "cpu" and torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE", 0))

    problem = f"--device cuda: PyTorch {torch.__version__} sees no GPU on {host}"
    cure = "install a CUDA build of PyTorch and ask Slurm for GPUs, or give --device cpu"
    check(cuda or wanted != "cuda", f"{problem}; {cure}")
    if wanted == "auto" and gpus and not cuda:
        say_once("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs (--device cuda insists)")

    hosts = everybody(host)
    nodes, here = len(set(hosts)), hosts.count(host)
    allotted = int(os.environ.get("SLURM_NNODES", nodes))
    problem = f"{world} processes run on {nodes} nodes, but Slurm allotted {allotted}"
    check(nodes == allotted, f"{problem}; start one torchrun on each of them: srun --ntasks-per-node=1")
    allotted = gpus or int(os.environ["LOCAL_WORLD_SIZE"])
    problem = f"{here} processes run on {host}, but Slurm allotted {allotted}"
    check(here == allotted, f"{problem}; give its one torchrun --nproc-per-node={allotted}")

    job = f" job={os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    print(
        f"rank {rank}/{world} start host={host} local_rank={os.environ['LOCAL_RANK']} pid={os.getpid()} "
        f"device={device} backend={backend} framework=torch-{torch.__version__}{job}"
    )
    say_once(
        f"Starting distributed training on {world} {'GPUs' if cuda else 'CPU processes'} "
        f"(nodes x processes: {nodes} x {world // nodes}, backend: {backend}), master node: {host}"
    )
    return device


def everybody(value):
    """Return the values of all processes, in the order of their ranks."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def check(fine, problem):
    """Continue if this is true on all ranks; otherwise rank 0 prints one error line, and all end with status 2."""
    problems = [found for found in everybody(None if fine else problem) if found is not None]
    if problems:
        if dist.get_rank() == 0:
            print(f"error: {problems[0]}", file=sys.stderr, flush=True)
        leave(2)


def leave(status):
    """End this process once all others have come here: torchrun ends the rest when the first has failed."""
    dist.barrier()
    atexit.register(dist.destroy_process_group)  # once the model is gone
    sys.exit(status)


def from_rank_0(function):
    """Let rank 0 do something while the others wait; return its result on all ranks."""
    box, problem = [None], None
    if dist.get_rank() == 0:
        try:
            box = [function()]
        except (ValueError, OSError) as error:
            problem = str(error)
    check(problem is None, f"{problem}")
    dist.broadcast_object_list(box, src=0)
    return box[0]


def say_once(line):
    """Print a line on rank 0."""
    if dist.get_rank() == 0:
        print(line)


def write_whole(path, write):
    """Let a function write a file that is there whole or not at all, whatever happens meanwhile."""
    content = io.BytesIO()
    write(content)  # torch.save does not name the reason where a disk is full
    beside = path.with_name(f".{path.name}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)  # in one step, and only after all of it is on the disk
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {error.strerror}; earlier files are whole") from None
