"""What autograd keeps for the backward pass on a rank of the guide *When it does not fit*, beside what a formula says.

python bench/fit_activations.py         # writes bench/results/fit_activations.json
"""

from __future__ import annotations

from importlib.metadata import version

from helpers.fit_kept_bytes import predicted_bytes, saved_bytes
from helpers.fit_trainings import PROGRAMS
from helpers.program import options_of, write
from measurements import Configuration

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
    options = options_of(__doc__, "fit_activations")

    configurations = []
    for name, ranks in RUNS:
        kept = saved_bytes(PROGRAMS / name, ranks)
        samples = {"kept_MiB": [max(kept) / 2**20], "formula_MiB": [max(predicted_bytes(name, ranks)) / 2**20]}
        configurations.append(Configuration(f"{name}, {ranks} ranks", {"program": name, "ranks": ranks}, samples))
        print(name, ranks, kept, predicted_bytes(name, ranks), flush=True)
    write(
        options.output,
        configurations,
        versions={"torch": version("torch")},
        parameters={"across_ranks": "maximum", "backend": "gloo"},
    )


if __name__ == "__main__":
    main()
