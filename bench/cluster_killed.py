"""What `srunbook cluster up` leaves when a signal ends it at any instant. Needs Linux and root.

python bench/cluster_killed.py         # 20 instants; writes bench/results/cluster_killed.json

After each the next `up` or `down` of that name clears up; what is left after it should be nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from helpers.typed import typed

import srunbook
from srunbook import cluster
from srunbook.measurements import Configuration, Measurement, write_measurement

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "cluster_killed.json"
sys.path.insert(0, str(ROOT / "tests"))

from support.killed import SIGNALS, Kill, Outcome, draw, duration, end  # noqa: E402
from support.traces import adopt_orphans  # noqa: E402

NAME = "bench-killed"


def row(kill: Kill, outcome: Outcome) -> dict[str, float]:
    """Return the samples of one end."""
    found = {
        "at_s": round(kill.seconds, 3),
        "status": outcome.status,
        "next_is_up": int(kill.then == "up"),
        "next_failed": int(bool(outcome.problem)),
    }
    found |= {f"{kind}_at_once": count for kind, count in outcome.at_once.items()}
    found |= {f"{kind}_left": len(outcome.left.get(kind, ())) for kind in outcome.at_once}
    shown = ("processes", "cgroups")
    return found | {"rest_left": sum(len(left) for kind, left in outcome.left.items() if kind not in shown)}


def main() -> None:
    """End `up` at each instant, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ends", type=int, default=20)
    parser.add_argument("--slurm", default="22.05")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()

    signal.signal(signal.SIGINT, signal.default_int_handler)  # `up` hears it, also where this runs under nohup
    adopt_orphans()
    cluster.down(NAME)
    kind = ["--slurm", options.slurm, "--nodes", str(options.nodes)]
    took = duration(NAME, kind)
    samples: dict[str, dict[str, list[float]]] = {number.name: {} for number in SIGNALS}
    for kill in draw(options.ends, took, options.seed):
        outcome = end(NAME, kill, kind)
        print(f"{kill.number.name} after {kill.seconds:.2f} s of {took:.2f} s, then {kill.then}: {outcome}", flush=True)
        for quantity, value in row(kill, outcome).items():
            samples[kill.number.name].setdefault(quantity, []).append(value)
    measurement = Measurement.taken_now(
        typed(),
        [Configuration(name, {"signal": name}, taken) for name, taken in samples.items() if taken],
        versions={"srunbook": srunbook.__version__},
        parameters={
            "ends": options.ends,
            "seed": options.seed,
            "slurm": options.slurm,
            "nodes": options.nodes,
            "up_s": round(took, 3),
        },
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
