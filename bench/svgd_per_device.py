"""From how many particles on each device a second node pays: a sweep over particles, on one node and on two.

sudo python bench/svgd_per_device.py   # writes bench/results/svgd_per_device.json

Needs root and a quiet machine: it boots the cluster of two nodes that bench/svgd_scaling.py measures on. Its nodes have
one device each, a share of a CPU, and a link of limited rate. A repeat is a job step of its own.
"""

from __future__ import annotations

import os
import statistics

from helpers.program import boot, options_of
from helpers.svgd_jobs import ROWS, SETTINGS, job, slowest, write
from measurements import Configuration

from srunbook import cluster

SETTING = SETTINGS[0]
ON_EACH = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Particles on each of the two devices."""


def main() -> None:
    """Measure all counts in turn, and writes the file."""
    options = options_of(__doc__, "svgd_per_device", repeats=5, slurm="22.05")
    load = round(os.getloadavg()[0], 2)
    name = "bench-per-device"
    state = boot(
        cluster.Specification(name=name, slurm=options.slurm, nodes=2, cpu_quota=SETTING.quota, link=SETTING.link)
    )
    samples: dict[int, dict[str, list[float]]] = {m: {} for m in ON_EACH}
    particles = [str(2 * m) for m in ON_EACH]
    try:
        for repeat in range(options.repeats):
            one, two = (slowest(job(state, nodes, f"--rows={ROWS}", "--particles", *particles)) for nodes in (1, 2))
            for m in ON_EACH:
                first, second = one[str(2 * m)], two[str(2 * m)]
                found = {"one_node_ms": 1e3 * first, "two_nodes_ms": 1e3 * second, "speedup": first / second}
                for quantity, value in found.items():
                    samples[m].setdefault(quantity, []).append(round(value, 4))
            print(f"repeat {repeat + 1} of {options.repeats}", flush=True)
    finally:
        cluster.down(name)
    for m in ON_EACH:
        medians = (f"{quantity} {statistics.median(values):.4g}" for quantity, values in samples[m].items())
        print(f"{m:5} on each  {'  '.join(medians)}", flush=True)
    rows = [
        Configuration(f"{m} particles on each", {"particles_per_device": m, "n": 2 * m}, samples[m]) for m in ON_EACH
    ]
    write(
        options.output,
        rows,
        options.slurm,
        link=SETTING.link,
        cpu_quota=SETTING.quota,
        devices_per_node=1,
        load_before=load,
    )


if __name__ == "__main__":
    main()
