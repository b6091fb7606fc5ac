"""The all-reduce of `allreduce.py` in today's JAX, in two ways.

    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python allreduce_modern.py  # a laptop: four processes
    sbatch allreduce_modern.sbatch                                                 # two nodes, eight GPUs

You should now see the same sum from `jit` and from `shard_map`, and one all-reduce in each compiled program.
`x` is one array over the devices of all processes; each process holds, and has filled, only its own part.
"""

from __future__ import annotations

import json
import os
import re
import socket

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


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

    # 1. A mesh: all devices of all processes, in one row that is called "devices".
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    split = NamedSharding(mesh, P("devices"))  # each device holds its own part
    whole = NamedSharding(mesh, P())  # each device holds all of it

    # 2. One global array. Every process brings the part that its own devices will hold.
    x = jax.make_array_from_process_local_data(split, np.ones(jax.local_device_count(), np.float32))
    here = len(x.addressable_shards)
    print(f"Process {jax.process_index()}: x has shape {x.shape}, {here} of its {x.size} shards are here", flush=True)

    # 3. With jit: say what you want and where; the compiler finds out what must be sent.
    with_jit = jax.jit(jnp.sum, out_shardings=whole)

    # 4. With shard_map: write what one device does, the sending included.
    with_shard_map = jax.jit(
        jax.shard_map(
            lambda part: jax.lax.psum(jnp.sum(part), "devices"), mesh=mesh, in_specs=P("devices"), out_specs=P()
        )
    )

    for name, function in (("jit", with_jit), ("shard_map", with_shard_map)):
        program = function.lower(x).compile()
        sends = len(re.findall(r" all-reduce(?:-start)?\(", program.as_text()))
        print(f"Process {jax.process_index()} has y={program(x)} with {name} ({sends} all-reduce)", flush=True)

    end = {"event": "end", "rank": jax.process_index(), "steps": 2, "params_sha256": None}
    print("record " + json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
