"""How the processes of a program start, agree and end together."""

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
    facts = [None] * world
    allotted = os.environ.get("SLURM_NNODES"), gpus or int(os.environ["LOCAL_WORLD_SIZE"])
    dist.all_gather_object(facts, (host, cuda, *allotted))
    hosts = [fact[0] for fact in facts]
    nodes = len(set(hosts))
    for name, sees_gpu, allotted_nodes, allotted in facts:
        if wanted == "cuda" and not sees_gpu:
            cure = "install a CUDA build of PyTorch and ask Slurm for GPUs, or give --device cpu"
            fail(f"--device cuda: PyTorch {torch.__version__} sees no GPU on {name}; {cure}")
        if nodes != int(allotted_nodes or nodes):
            cure = "start one torchrun on each of them: srun --ntasks-per-node=1"
            fail(f"{world} processes run on {nodes} nodes, but Slurm allotted {allotted_nodes}; {cure}")
        if hosts.count(name) != allotted:
            cure = f"give its one torchrun --nproc-per-node={allotted}"
            fail(f"{hosts.count(name)} processes run on {name}, but Slurm allotted {allotted}; {cure}")

    if wanted == "auto" and gpus and not cuda:
        say_once("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs (--device cuda insists)")
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


def fail(problem):
    """End all ranks with status 2; rank 0 says why. All ranks call this, so that none waits for another."""
    if dist.get_rank() == 0:
        print(f"error: {problem}", file=sys.stderr, flush=True)
    dist.barrier()  # the line is out before the first rank ends, and torchrun ends the rest
    os._exit(2)  # at once: torchrun's SIGTERM would interrupt a slower exit


def on_rank_0(function, *arguments):
    """Call a function on rank 0; return its result on all ranks, or end them all with its error."""
    shared = [None, None]  # the result and the problem
    if dist.get_rank() == 0:
        try:
            shared[0] = function(*arguments)
        except (ValueError, OSError) as error:
            shared[1] = str(error)
    dist.broadcast_object_list(shared)
    if shared[1] is not None:
        fail(shared[1])
    return shared[0]


def say_once(line):
    """Print a line on rank 0."""
    if dist.get_rank() == 0:
        print(line)
