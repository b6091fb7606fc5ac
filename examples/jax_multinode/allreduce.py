"""An all-reduce with `pmap`: every device gives a number, every device gets the sum.

    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python allreduce.py  # a laptop
    sbatch allreduce.sbatch                                                 # two nodes

You should now see, once from every process, a `y` that is the number of devices in the job.
This is the older way, kept because you will meet it. Today's is in `allreduce_modern.py`.
"""

from __future__ import annotations

import os
import socket

import jax
import jax.numpy as jnp


def main() -> None:
    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    device, version = jax.local_devices()[0], jax.__version__
    print(f"rank {rank}/{world} start host={host} device={device} framework=jax-{version}", flush=True)
    mine = jax.local_device_count()
    print(f"Total devices: {jax.device_count()} | Devices per task: {mine}", flush=True)

    x = jnp.ones(mine)  # a 1 for each device of this process
    sum_over_all = jax.pmap(lambda one: jax.lax.psum(one, "devices"), axis_name="devices")
    y = sum_over_all(x)

    # y holds one entry for each device of this process, and nothing of the other processes.
    print(f"Process {rank} has y={y}", flush=True)

    print(f"rank {rank}/{world} end steps=1", flush=True)


if __name__ == "__main__":
    main()
