"""An all-reduce with `pmap`: every device gives a number, every device gets the sum.

    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python allreduce.py  # a laptop
    sbatch allreduce.sbatch                                                 # two nodes

You should now see, once from every process, a `y` that is the number of devices in the job.
This is the older way, kept because you will meet it. Today's is in `allreduce_modern.py`.
"""

from __future__ import annotations

import json
import os
import socket

import jax
import jax.numpy as jnp


def start_record() -> dict[str, object]:
    """Who this process is; one line of it makes a log readable, and checkable, later."""
    on_cpu = jax.default_backend() == "cpu"
    return {
        "event": "start",
        "rank": jax.process_index(),
        "world_size": jax.process_count(),
        "local_rank": int(os.environ.get("SLURM_LOCALID", "0")),
        "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "pid": os.getpid(),
        "backend": "gloo" if on_cpu else "nccl",
        "device": "cpu" if on_cpu else "cuda",
        "framework": f"jax {jax.__version__}",
        "job": os.environ.get("SLURM_JOB_ID"),
    }


def main() -> None:
    jax.distributed.initialize()
    print("record " + json.dumps(start_record()), flush=True)
    mine = jax.local_device_count()
    print(f"Total devices: {jax.device_count()} | Devices per task: {mine}", flush=True)

    x = jnp.ones(mine)  # a 1 for each device of this process
    sum_over_all = jax.pmap(lambda one: jax.lax.psum(one, "devices"), axis_name="devices")
    y = sum_over_all(x)

    # y holds one entry for each device of this process, and nothing of the other processes.
    print(f"Process {jax.process_index()} has y={y}", flush=True)

    end = {"event": "end", "rank": jax.process_index(), "steps": 1, "params_sha256": None}
    print("record " + json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
