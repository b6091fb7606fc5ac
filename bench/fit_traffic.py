"""Bytes that each program of the guide *When it does not fit* sends in a step, beside what a formula says.

sudo python bench/fit_traffic.py        # writes bench/results/fit_traffic.json

Needs root, for it boots a cluster with `srunbook cluster`. The nodes' own interfaces are counted, headers and all,
which does not depend on what else the machine does.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from helpers.fit_nodes import ACCUMULATED, NODES, PIECES, PROGRAMS, STEPS, WARM_UP, run_steps
from helpers.fit_traffic_model import predicted_bytes
from helpers.program import boot, options_of, write
from measurements import Configuration

from srunbook import cluster

CLUSTER = "bench-fit-traffic"


def main() -> None:
    """Run all programs some times, and write what was counted beside the formulas."""
    options = options_of(__doc__, "fit_traffic", repeats=3, slurm="22.05")
    runs = PROGRAMS | ACCUMULATED
    sent: dict[str, list[float]] = {name: [] for name in runs}
    try:
        state = boot(cluster.Specification(name=CLUSTER, slurm=options.slurm, nodes=NODES))
        slurm = state.root["slurm"]
        for repeat in range(options.repeats):
            for name, ranks in run_steps(state, runs).items():
                sent[name].append(statistics.mean(rank["sent"] for rank in ranks) / 1e6)
            print(f"repeat {repeat + 1} of {options.repeats}: {sent}", flush=True)
    finally:
        cluster.down(CLUSTER)
    configurations = []
    for name, counted in sent.items():
        gloo, nccl = (predicted_bytes(name, NODES, library) / 1e6 for library in ("gloo", "NCCL"))
        samples = {"counted_MB": counted, "formula_for_gloo_MB": [gloo], "predicted_for_NCCL_MB": [nccl]}
        chosen: dict[str, Any] = {"program": runs[name].program, "ranks": NODES, "pieces": 1}
        if name in ACCUMULATED:
            chosen |= {"pieces": PIECES, "gradients_are_sent": name}
        configurations.append(Configuration(name, chosen, samples))
    write(
        options.output,
        configurations,
        versions={"torch": torch.__version__, "slurm": slurm},
        parameters={
            "nodes": NODES,
            "steps": STEPS,
            "warm_up": WARM_UP,
            "across_nodes": "mean",
            "repeats": options.repeats,
        },
    )


if __name__ == "__main__":
    main()
