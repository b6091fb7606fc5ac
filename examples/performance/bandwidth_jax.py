"""Measure how fast all devices sum an array, from 1 kB to 1 GB (on CPUs, to 64 MB).

srunbook simulate --nodes 2 --ntasks-per-node 1 -- python bandwidth_jax.py
sbatch data_parallel.sbatch bandwidth_jax.py

The table goes to bandwidth-JOBID.json too.
"""

import json
import os
from pathlib import Path
from statistics import median
from time import perf_counter

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def main():
    rank, world_size, devices = jax.process_index(), jax.process_count(), jax.device_count()
    device = jax.local_devices()[0]
    print(f"rank {rank}/{world_size} start host={os.uname().nodename} device={device}", flush=True)
    mesh = jax.make_mesh((devices,), ("devices",))
    split = NamedSharding(mesh, P("devices"))
    add_up = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "devices"), mesh=mesh, in_specs=P("devices"), out_specs=P())
    )

    rows = []
    for exponent in range(10, 27 if device.platform == "cpu" else 31, 2):
        array = jax.jit(lambda length: jnp.zeros(length), static_argnums=0, out_shardings=split)(
            2**exponent // 4 * devices
        )
        seconds = []
        for _ in range(25 if exponent < 24 else 8):
            start = perf_counter()
            add_up(array).block_until_ready()
            seconds.append(perf_counter() - start)
        taken = median(seconds[3:])  # the first ones compile and connect
        sent = 2 * (devices - 1) / devices * 2**exponent  # bytes that each device sends
        rows.append({"bytes": 2**exponent, "us": 1e6 * taken, "busbw_MBps": sent / taken / 1e6})
        if rank == 0:
            print(f"{2**exponent:13,} bytes {1e6 * taken:12.1f} us {sent / taken / 1e6:10.1f} MB/s", flush=True)

    if rank == 0:
        name = f"bandwidth-{os.environ.get('SLURM_JOB_ID', 'local')}.json"
        Path(name).write_text(json.dumps({"devices": devices, "rows": rows}))
    print(f"rank {rank}/{world_size} end", flush=True)


if __name__ == "__main__":
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1:
        jax.distributed.initialize()  # before anything else that uses JAX
    main()
