"""Time of a step of each program of the guide *When it does not fit*, over links of three rates.

sudo python bench/fit_step_times.py     # writes bench/results/fit_step_times.json

Needs root and a quiet machine, for it boots a cluster with `srunbook cluster`. A repeat is a job step of its own for
each link, and the links take turns.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from helpers.clusters import boot
from helpers.fit_nodes import NODES, PROGRAMS, STEPS, WARM_UP, run_steps
from helpers.typed import typed

from srunbook import cluster
from srunbook.measurements import Configuration, Measurement, write_measurement

RESULT = Path(__file__).resolve().parent / "results" / "fit_step_times.json"
CLUSTER = "bench-fit-times"
LINKS = {"100mbit": "at_100_Mbit/s_ms", "1gbit": "at_1_Gbit/s_ms", None: "unlimited_ms"}
"""Each with the name of its samples."""


def main() -> None:
    """Time all programs over each link, some times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--slurm", default="22.05")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
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
    measurement = Measurement.taken_now(
        typed(),
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
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
