"""How long a simulation of processes that do nothing takes: what `srunbook.simulate.run` adds to a program.

python bench/simulate_start.py         # writes bench/results/simulate_start.json
"""

from __future__ import annotations

import time

from helpers.program import options_of, write
from measurements import Configuration

from srunbook import simulate

LAYOUTS = {"1 process": (1, 1), "2 nodes, 1 process each": (2, 1), "2 nodes, 2 processes each": (2, 2)}


def milliseconds(nodes: int, ntasks_per_node: int) -> float:
    """Measure the wall time of a simulation of `true`, in milliseconds."""
    start = time.perf_counter()
    result = simulate.run(["true"], nodes=nodes, ntasks_per_node=ntasks_per_node)
    wall = (time.perf_counter() - start) * 1000
    if result.returncode != 0:
        raise SystemExit(result.failure)
    return wall


def main() -> None:
    """Take the samples of all layouts in turn."""
    options = options_of(__doc__, "simulate_start", repeats=30)

    for layout in LAYOUTS.values():
        milliseconds(*layout)
    samples: dict[str, list[float]] = {name: [] for name in LAYOUTS}
    for _ in range(options.repeats):
        for name, layout in LAYOUTS.items():
            samples[name].append(round(milliseconds(*layout), 3))

    configurations = []
    for name, (nodes, ntasks_per_node) in LAYOUTS.items():
        parameters = {"nodes": nodes, "ntasks_per_node": ntasks_per_node}
        configurations.append(Configuration(name, parameters, {"wall_ms": samples[name]}))
    write(
        options.output,
        configurations,
        parameters={"repeats": options.repeats, "warm_up": 1, "order": "in turn", "command": "true"},
    )


if __name__ == "__main__":
    main()
