"""How long a cluster of many nodes takes to start, to run a task on every node and to stop, and what memory it takes.

Needs Linux and root.

python bench/cluster_size.py          # 4 to 256 nodes, 3 repeats, 5 minutes; writes bench/results/cluster_size.json

Two quantities of memory: `memory_GiB` is what the kernel charges to the cluster's cgroup after the task has run: its
processes, its files in memory, and what the kernel keeps for them. `machine_GiB` is by how much the memory that is
available on the whole machine has fallen since before `up`; whatever else runs there shows in it, too. `load` is the
load average of one minute before `up`.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from helpers.program import boot, options_of, write
from measurements import Configuration

import srunbook
from srunbook import cluster

GIB = 2**30


def available() -> int:
    """Return the memory that is available on this machine, in bytes."""
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def charged(state: cluster.State) -> int | None:
    """Return the memory that is charged to a cluster's cgroup, in bytes, or None without one."""
    names = ("memory.usage_in_bytes", "memory.current")
    files = (group / name for group in state.groups for name in names)
    return next((int(file.read_text(encoding="ascii")) for file in files if file.exists()), None)


def one(slurm: str, nodes: int) -> tuple[dict[str, float], str]:
    """Start a cluster, run `hostname` on every node and stop it; return the quantities and the version of Slurm."""
    load, before = os.getloadavg()[0], available()
    start = time.perf_counter()
    state = boot(cluster.Specification(name="size", slurm=slurm, nodes=nodes))
    idle = time.perf_counter()
    try:
        result = cluster.capture(state, ["srun", f"--nodes={nodes}", "hostname"])
        ran = time.perf_counter()
        memory, left = charged(state), available()
    finally:
        stopping = time.perf_counter()
        cluster.down("size")
    ended = time.perf_counter()
    if sorted(result.stdout.split()) != sorted(state.specification.node_names):
        raise SystemExit(f"srun did not run on {nodes} nodes: {result.stderr}")
    if traces := [path for path in (state.folder, *state.groups) if path.exists()]:
        raise SystemExit(f"down left {traces}")
    found = {"up_s": idle - start, "srun_s": ran - idle, "down_s": ended - stopping}
    found |= {"memory_GiB": memory / GIB} if memory is not None else {}
    return {**found, "machine_GiB": (before - left) / GIB, "load": load}, state.root["slurm"]


def main() -> None:
    """Take the samples, the sizes in turn."""
    options = options_of(__doc__, "cluster_size", nodes=[4, 16, 64, 256], slurm=cluster.NEWEST, repeats=3)

    samples: dict[int, dict[str, list[float]]] = {nodes: {} for nodes in options.nodes}
    one(options.slurm, options.nodes[0])  # warms the page cache
    for _ in range(options.repeats):
        for nodes in options.nodes:
            found, version = one(options.slurm, nodes)
            for quantity, value in found.items():
                samples[nodes].setdefault(quantity, []).append(round(value, 3))
            print(nodes, "  ".join(f"{quantity} {value:.3g}" for quantity, value in found.items()), flush=True)
    write(
        options.output,
        [Configuration(f"{nodes} nodes", {"nodes": nodes}, taken) for nodes, taken in samples.items()],
        versions={"srunbook": srunbook.__version__, "slurm": version},
        parameters={"repeats": options.repeats, "warm_up": 1, "order": "in turn", "root": "in the cache"},
    )


if __name__ == "__main__":
    main()
