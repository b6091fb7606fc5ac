"""What autograd keeps for the backward pass on a rank of the guide *When it does not fit*, beside what a formula says.

python bench/fit_activations.py         # writes bench/results/fit_activations.json
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers.typed import typed

from srunbook.measurements import Configuration, Measurement, write_measurement

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # which count the same

from support import forked  # noqa: E402
from support.one_oracle import PROGRAMS  # noqa: E402
from support.saved_bytes import predicted_bytes, saved_bytes  # noqa: E402

RESULT = ROOT / "bench" / "results" / "fit_activations.json"
RUNS = (
    ("ddp.py", 1),
    ("ddp.py", 4),
    ("fsdp.py", 2),
    ("fsdp.py", 4),
    ("tensor_parallel.py", 2),
    ("tensor_parallel.py", 4),
    ("context_parallel.py", 2),
    ("context_parallel.py", 4),
    ("pipeline.py", 2),
    ("pipeline.py", 4),
)


def main() -> None:
    """Count on every rank; a sample is the rank that keeps most, for the count is the same in every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"

    configurations = []
    with tempfile.TemporaryDirectory() as folder, forked.forking(PROGRAMS) as process:
        start = forked.Forked(process, Path(folder))
        for name, ranks in RUNS:
            found = saved_bytes(start, PROGRAMS / name, ranks)
            samples = {"kept_MiB": [max(found) / 2**20], "formula_MiB": [max(predicted_bytes(name, ranks)) / 2**20]}
            configurations.append(Configuration(f"{name}, {ranks} ranks", {"program": name, "ranks": ranks}, samples))
            print(name, ranks, found, predicted_bytes(name, ranks), flush=True)
    measurement = Measurement.taken_now(
        typed(),
        configurations,
        versions={"torch": version("torch")},
        parameters={"across_ranks": "maximum", "backend": "gloo"},
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
