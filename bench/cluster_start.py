"""How long a cluster takes to start and to stop, once its root is in the cache. Needs Linux and root.

python bench/cluster_start.py          # 4 nodes, 5 repeats; writes bench/results/cluster_start.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from helpers.typed import typed

import srunbook
from srunbook import cluster
from srunbook.cli._checkout import provision
from srunbook.measurements import Configuration, Measurement, write_measurement

RESULT = Path(__file__).parent / "results" / "cluster_start.json"


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()

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
    for configuration in configurations:
        figures = (f"{quantity} {configuration.median(quantity):.3g}" for quantity in configuration.samples)
        print(f"{configuration.name:24}  {'  '.join(figures)}")
    measurement = Measurement.taken_now(
        typed(),
        configurations,
        versions={"srunbook": srunbook.__version__},
        parameters={"repeats": options.repeats, "warm_up": 1, "order": "in turn", "root": "in the cache"},
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
