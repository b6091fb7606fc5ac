"""A step of DDP by two processes: on one node, and on two nodes whose links have 100 Mbit/s.

sudo python bench/lightning_nodes.py       # writes bench/results/lightning_nodes.json

Needs root and a quiet machine with two cores, for it boots a cluster of two nodes with `srunbook cluster`. Each repeat
is two job steps with new processes; both train the same models, so nothing differs but what the gradients go over.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from helpers.lightning_job import run, step
from helpers.network import link_bound
from helpers.program import boot, options_of, write
from measurements import Configuration

from srunbook import cluster

CLUSTER = "bench-nodes"
LINK, RATE = "100mbit", 100e6
FEATURES, CLASSES = 32, 5  # of examples/lightning/same_model.py

SHAPES = {"small": {"steps": 40, "epochs": 3}, "wide": {"steps": 8, "epochs": 3, "hidden": 512}}
BATCH = 64
LAYOUTS = {
    "one node": "srun --nodes=1 --ntasks=2 --ntasks-per-node=2",
    "two nodes": "srun --nodes=2 --ntasks=2 --ntasks-per-node=1",
}


def gradient_bytes(shape: dict[str, int]) -> int:
    """Return the bytes of all gradients, four for each parameter."""
    hidden = shape.get("hidden", 64)
    between = hidden * (hidden + 1) if "hidden" in shape else 0
    return 4 * (hidden * (FEATURES + 1) + between + CLASSES * (hidden + 1))


def layout_step(layout: str, repeat: int) -> str:
    """Write the line for both models on one layout; an unnamed case warms up."""
    cases: list[dict[str, Any]] = [
        {"name": f"{layout}: {model}", "repeat": repeat, "program": "srun_ddp.py", "batch": BATCH, **shape}
        for model, shape in SHAPES.items()
    ]
    return step(f"{LAYOUTS[layout]} --kill-on-bad-exit=1 python", [{**cases[0], "name": "", "epochs": 1}, *cases])


def main() -> None:
    """Measure and writes the file."""
    options = options_of(__doc__, "lightning_nodes", repeats=10, slurm="22.05")

    wanted = cluster.Specification(name=CLUSTER, slurm=options.slurm, nodes=2, link=LINK)
    state = boot(wanted)
    try:
        steps = [layout_step(layout, repeat) for repeat in range(options.repeats) for layout in LAYOUTS]
        samples = run(state, steps, nodes=2, tasks=2, repeats=options.repeats, timeout=900)
    finally:
        cluster.down(CLUSTER)
    configurations = []
    for model, shape in SHAPES.items():
        size = gradient_bytes(shape)
        for layout in LAYOUTS:
            bound = link_bound(size, 2, RATE) if layout == "two nodes" else 0.0
            parameters = {
                "model": model,
                "gradients (kB)": round(size / 1000),
                "processes on": layout,
                "link alone (ms)": round(1e3 * bound, 1),
            }
            times = samples[f"{layout}: {model}"]["step_ms"]
            configurations.append(Configuration(f"{model}, {layout}", parameters, {"step_ms": times}))
    write(
        options.output,
        configurations,
        versions={"torch": importlib.metadata.version("torch"), "slurm": state.root["slurm"]},
        parameters={"repeats": options.repeats, "batch": BATCH, "across_ranks": "maximum", "order": "in turn"},
        machine={"threads": 1, "link": LINK},
    )


if __name__ == "__main__":
    main()
