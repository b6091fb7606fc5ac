"""The all-reduce of `allreduce.py` in today's JAX, in two ways.

    srunbook simulate --nodes 2 --ntasks-per-node 2 -- python allreduce_modern.py  # a laptop
    sbatch allreduce_modern.sbatch                                                 # two nodes

You should now see the same sum from `jit` and from `shard_map`, with one all-reduce in each.
`x` is one array over the devices of all processes; each process fills and holds its own part.
"""

from __future__ import annotations

import os
import re
import socket

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

assert jax.__version_info__ >= (0, 6, 1), f"needs JAX 0.6.1 or newer, found {jax.__version__}"


def main() -> None:
    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    device, version = jax.local_devices()[0], jax.__version__
    print(f"rank {rank}/{world} start host={host} device={device} framework=jax-{version}", flush=True)

    # 1. A mesh: all devices of all processes, in one row that is called "devices".
    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    split = NamedSharding(mesh, P("devices"))  # each device holds its own part
    whole = NamedSharding(mesh, P())  # each device holds all of it

    # 2. One global array. Every process brings the part that its own devices will hold.
    mine = np.ones(jax.local_device_count(), np.float32)
    x = jax.make_array_from_process_local_data(split, mine)
    here = len(x.addressable_shards)
    print(f"Process {rank}: x has shape {x.shape}, {here} of its {x.size} shards are here", flush=True)

    # 3. With jit: say what you want and where; the compiler finds out what must be sent.
    with_jit = jax.jit(jnp.sum, out_shardings=whole)

    # 4. With shard_map: write what one device does, the sending included.
    def sum_parts(part):
        return jax.lax.psum(jnp.sum(part), "devices")

    with_shard_map = jax.jit(
        jax.shard_map(sum_parts, mesh=mesh, in_specs=P("devices"), out_specs=P()),
    )

    for name, function in (("jit", with_jit), ("shard_map", with_shard_map)):
        program = function.lower(x).compile()
        sends = len(re.findall(r" all-reduce(?:-start)?\(", program.as_text()))
        y = program(x)
        print(f"Process {rank} has y={y} with {name} ({sends} all-reduce)", flush=True)

    print(f"rank {rank}/{world} end steps=2", flush=True)


if __name__ == "__main__":
    main()
