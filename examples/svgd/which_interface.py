"""Which network do the processes use, and how fast is it? Looks without being root.

srunbook simulate --nodes 2 -- python which_interface.py
srun python which_interface.py

All processes exchange particles as SVGD does. Each then says how many bytes left its node, by which interface,
and whether it has loaded the library NCCL.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from srunbook import initialize_distributed

COUNTERS = Path("/proc/net/dev")  # the kernel counts for everybody
LOADED = Path("/proc/self/maps")  # the libraries that this process has in its memory


def sent() -> dict[str, int]:
    """Return the bytes that each interface of this node has sent."""
    rows = (line.partition(":") for line in COUNTERS.read_text(encoding="ascii").splitlines()[2:])
    return {name.strip(): int(numbers.split()[8]) for name, _, numbers in rows}


parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--megabytes", type=float, default=1.0, help="what each exchange brings together")
parser.add_argument("--times", type=int, default=20)
options = parser.parse_args()

dist_info = initialize_distributed()
if dist_info.num_processes == 1:
    parser.error("one process sends nothing. Start several: srunbook simulate --nodes 2 -- python which_interface.py")
mesh = jax.make_mesh((dist_info.global_device_count,), ("particles",), axis_types=(AxisType.Auto,))
split, whole = NamedSharding(mesh, P("particles")), NamedSharding(mesh, P())
rows = dist_info.global_device_count * max(1, int(options.megabytes * 2**20 / 4 / dist_info.global_device_count))
particles = jax.make_array_from_callback((rows,), split, lambda index: np.ones(rows, np.float32)[index])
gather = jax.jit(lambda x: x + 1.0, out_shardings=whole)
jax.block_until_ready(gather(particles))  # the first call compiles and connects

before, start = sent(), time.perf_counter()
for _ in range(options.times):
    jax.block_until_ready(gather(particles))
seconds = time.perf_counter() - start
name, amount = max(((name, count - before.get(name, 0)) for name, count in sent().items()), key=lambda pair: pair[1])

host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
wanted = os.environ.get("NCCL_SOCKET_IFNAME")
asked = f", NCCL_SOCKET_IFNAME is {wanted}" if wanted else ""
nccl = "loaded" if "nccl" in LOADED.read_text(encoding="utf-8", errors="replace") else "not loaded"
line = f"{host}: {name} sent {amount / 1e6:.1f} MB in {seconds:.2f} s, {8 * amount / seconds / 1e6:.0f} Mbit/s{asked}"
sys.stdout.write(f"{line}, NCCL is {nccl}\n")
