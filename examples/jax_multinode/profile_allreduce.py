"""Where does the time go? A trace of the all-reduce, read back without TensorBoard.

    srunbook simulate --nodes 2 --ntasks-per-node 1 -- python profile_allreduce.py  # a laptop
    srun --nodes=2 --ntasks-per-node=4 python profile_allreduce.py                  # in a job

You should now see, from every process, its operations and the share of the all-reduce.
The traces stay under `profile/`; Perfetto and TensorBoard show them as timelines.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def operations(folder: Path) -> dict[str, list[float]]:
    """Milliseconds of every call of every operation, from the newest trace in a folder."""
    trace = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    planes = list(jax.profiler.ProfileData.from_file(str(trace)).planes)
    on_gpu = [plane for plane in planes if plane.name.startswith("/device:")]
    calls: dict[str, list[float]] = defaultdict(list)
    for plane in on_gpu or [plane for plane in planes if plane.name == "/host:CPU"]:
        for line in plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")  # its name, if it was compiled
                if operation and not event.name.startswith("end: "):
                    calls[str(operation)].append(event.duration_ns / 1e6)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description="Profiles an all-reduce over all devices.")
    parser.add_argument("--megabytes", type=float, default=4, help="summed from each device")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("profile"))
    options = parser.parse_args()

    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    host = os.environ.get("SLURMD_NODENAME", socket.gethostname())
    device, version = jax.local_devices()[0], jax.__version__
    print(f"rank {rank}/{world} start host={host} device={device} framework=jax-{version}", flush=True)

    mesh = jax.make_mesh((jax.device_count(),), ("devices",))
    mine = np.ones((jax.local_device_count(), int(options.megabytes * 1e6 / 4)), np.float32)
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("devices")), mine)

    def compute_then_sum(part):
        return jax.lax.psum(jnp.sin(part), "devices")

    step = jax.shard_map(compute_then_sum, mesh=mesh, in_specs=P("devices"), out_specs=P())
    program = jax.jit(step).lower(x).compile()
    # The compiler chooses names; its own listing says which of them are all-reduces.
    listing = program.as_text().replace("%", "")
    sums = set(re.findall(r"(\S+) = .* all-reduce(?:-start)?\(", listing))

    jax.block_until_ready(program(x))  # the first call sets up connections: leave it out
    folder = options.output / f"process{rank}"
    with jax.profiler.trace(folder):
        for _ in range(options.repeats):
            jax.block_until_ready(program(x))

    calls = operations(folder)
    total = sum(map(sum, calls.values()))
    share = sum(sum(times) for name, times in calls.items() if name in sums) / total
    for name, times in sorted(calls.items(), key=lambda item: -sum(item[1])):
        kind = "all-reduce" if name in sums else "compute"
        median = np.median(times)
        print(f"{kind:10s} {name:24s} {len(times):3d} calls  median {median:8.3f} ms")
    print(f"Process {rank}: {share:.0%} of {total:.1f} ms is all-reduce", flush=True)

    print(f"rank {rank}/{world} end steps={options.repeats}", flush=True)


if __name__ == "__main__":
    main()
