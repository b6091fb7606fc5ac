"""Time of a step of each program of the guide *When it does not fit*, over links of three rates.

sudo python bench/fit_step_times.py     # writes bench/results/fit_step_times.json

Needs root and a quiet machine, for it boots a cluster with `srunbook cluster`. A repeat is a job step of its own for
each link, and the links take turns.
"""

from __future__ import annotations

import os

import torch
from helpers.fit_nodes import NODES, PROGRAMS, STEPS, WARM_UP, run_steps
from helpers.program import boot, options_of, write
from measurements import Configuration

from srunbook import cluster

CLUSTER = "bench-fit-times"
LINKS = {"100mbit": "at_100_Mbit/s_ms", "1gbit": "at_1_Gbit/s_ms", None: "unlimited_ms"}
"""Each with the name of its samples."""


def main() -> None:
    """Time all programs over each link, some times."""
    options = options_of(__doc__, "fit_step_times", repeats=5, slurm="22.05")
    load = round(os.getloadavg()[0], 2)
    taken: dict[str, dict[str, list[float]]] = {program: {link: [] for link in LINKS.values()} for program in PROGRAMS}
    try:
        state = boot(cluster.Specification(name=CLUSTER, slurm=options.slurm, nodes=NODES))
        slurm = state.root["slurm"]
        for repeat in range(options.repeats):
            for link, samples in LINKS.items():
                if link is not None:
                    cluster.faults.link(state, link)
                for program, ranks in run_steps(state, PROGRAMS).items():
                    taken[program][samples].append(round(1e3 * max(rank["step_s"] for rank in ranks), 3))
                cluster.faults.heal(state)
            print(f"repeat {repeat + 1} of {options.repeats}: {taken}", flush=True)
    finally:
        cluster.down(CLUSTER)
    write(
        options.output,
        [Configuration(program, {"program": program, "ranks": NODES}, found) for program, found in taken.items()],
        versions={"torch": torch.__version__, "slurm": slurm},
        parameters={
            "nodes": NODES,
            "steps": STEPS,
            "warm_up": WARM_UP,
            "order": "links in turn",
            "across_steps": "median",
            "across_nodes": "maximum",
            "repeats": options.repeats,
            "load_before": load,
        },
        machine={"threads": 1},
    )


if __name__ == "__main__":
    main()
