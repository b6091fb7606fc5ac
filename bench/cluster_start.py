"""How long a cluster takes to start and to stop, once its root is in the cache. Needs Linux and root.

python bench/cluster_start.py          # 4 nodes, 5 repeats; writes bench/results/cluster_start.json
"""

from __future__ import annotations

import time

from helpers.program import options_of, write
from measurements import Configuration

from srunbook import cluster
from srunbook.cli._expected import provision


def one(slurm: str, nodes: int) -> dict[str, float]:
    """Start a cluster, runs one task on every node, and stops it; seconds of each."""
    start = time.perf_counter()
    state = cluster.up(cluster.Specification(name="bench", slurm=slurm, nodes=nodes), provision())
    idle = time.perf_counter()
    result = cluster.capture(state, ["srun", f"--nodes={nodes}", "hostname"])
    ran = time.perf_counter()
    cluster.down("bench")
    ended = time.perf_counter()
    if len(result.stdout.split()) != nodes:
        raise SystemExit(f"srun did not run on {nodes} nodes: {result.stderr}")
    return {"up_s": idle - start, "first_srun_s": ran - idle, "down_s": ended - ran}


def main() -> None:
    """Take the samples, the generations in turn."""
    options = options_of(__doc__, "cluster_start", nodes=[4, 16], repeats=5)

    cases = [(slurm, nodes) for nodes in options.nodes for slurm in cluster.GENERATIONS]
    samples: dict[tuple[str, int], dict[str, list[float]]] = {case: {} for case in cases}
    for repeat in range(options.repeats + 1):
        for case in cases:
            for quantity, seconds in one(*case).items():
                if repeat:  # the first one warms the page cache
                    samples[case].setdefault(quantity, []).append(round(seconds, 3))
    configurations = [
        Configuration(f"Slurm {slurm}, {nodes} nodes", {"slurm": slurm, "nodes": nodes}, taken)
        for (slurm, nodes), taken in samples.items()
    ]
    write(
        options.output,
        configurations,
        parameters={"repeats": options.repeats, "warm_up": 1, "order": "in turn", "root": "in the cache"},
    )


if __name__ == "__main__":
    main()
