"""Where does the time go? A trace of the all-reduce, read back without TensorBoard.

    srunbook simulate --nodes 2 --ntasks-per-node 1 -- python profile_allreduce.py  # a laptop
    srun --nodes=2 --ntasks-per-node=4 python profile_allreduce.py                  # in a job

You should now see, from every process, its operations and the share of the all-reduce.
The traces stay under `profile/`; Perfetto and TensorBoard show them as timelines.
"""

from __future__ import annotations

import argparse
import json
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
    print("record " + json.dumps(start_record()), flush=True)

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
    folder = options.output / f"process{jax.process_index()}"
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
    print(f"Process {jax.process_index()}: {share:.0%} of {total:.1f} ms is all-reduce", flush=True)

    end = {"event": "end", "rank": jax.process_index(), "steps": options.repeats}
    print("record " + json.dumps({**end, "params_sha256": None}), flush=True)


if __name__ == "__main__":
    main()
