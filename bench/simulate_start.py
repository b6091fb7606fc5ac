"""How long a simulation of processes that do nothing takes: what `srunbook.simulate.run` adds to a program.

python bench/simulate_start.py         # writes bench/results/simulate_start.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from helpers.typed import typed

import srunbook
from srunbook import simulate
from srunbook.measurements import Configuration, Measurement, write_measurement

LAYOUTS = {"1 process": (1, 1), "2 nodes, 1 process each": (2, 1), "2 nodes, 2 processes each": (2, 2)}
RESULT = Path(__file__).parent / "results" / "simulate_start.json"


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()

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
        print(f"{name:28}  wall_ms {configurations[-1].median('wall_ms'):8.2f}")
    measurement = Measurement.taken_now(
        typed(),
        configurations,
        versions={"srunbook": srunbook.__version__},
        parameters={"repeats": options.repeats, "warm_up": 1, "order": "in turn", "command": "true"},
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
