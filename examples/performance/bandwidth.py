"""Measure how fast all ranks sum a tensor, from 1 kB to 1 GB (on CPUs, to 64 MB).

    torchrun --standalone --nproc-per-node 2 bandwidth.py
    sbatch ddp.sbatch bandwidth.py

The table goes to bandwidth-JOBID.json too, and as a picture to bandwidth-JOBID.png.
"""

import json
import os
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist
import torch.distributed.nn  # before init_process_group, or its threads never end
from matplotlib.figure import Figure


def main():
    sys.stdout.reconfigure(line_buffering=True, write_through=False)  # print whole lines
    cuda = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}")

    rows = []
    for exponent in range(10, 31 if cuda else 27, 2):
        tensor = torch.zeros(2**exponent // 4, device=device)
        seconds = []
        for _ in range(25 if exponent < 24 else 8):
            dist.barrier()
            if cuda:
                torch.cuda.synchronize()
            start = perf_counter()
            dist.all_reduce(tensor)
            if cuda:
                torch.cuda.synchronize()
            seconds.append(perf_counter() - start)
        slowest = torch.tensor(median(seconds[3:]), device=device)  # the first ones are the warm-up
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        sent = 2 * (world_size - 1) / world_size * 2**exponent  # bytes that each rank sends
        row = {"bytes": 2**exponent, "us": 1e6 * slowest.item(), "busbw_MBps": sent / slowest.item() / 1e6}
        rows.append(row)
        if rank == 0:
            print(f"{row['bytes']:13,} bytes {row['us']:12.1f} us {row['busbw_MBps']:10.1f} MB/s")

    if rank == 0:
        name = f"bandwidth-{os.environ.get('SLURM_JOB_ID', 'local')}"
        Path(f"{name}.json").write_text(json.dumps({"ranks": world_size, "backend": dist.get_backend(), "rows": rows}))
        axes = (figure := Figure(layout="constrained")).subplots()
        axes.loglog([row["bytes"] for row in rows], [row["busbw_MBps"] for row in rows], "o-")
        axes.set(xlabel="bytes", ylabel="bus bandwidth (MB/s)")
        figure.savefig(f"{name}.png", dpi=150)
    print(f"rank {rank}/{world_size} end")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    dist.destroy_process_group()
