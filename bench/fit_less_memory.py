"""What recomputation, gradient accumulation and clipping over shards do in `less_memory.py` of *When it does not fit*.

python bench/fit_less_memory.py         # writes bench/results/fit_less_memory.json

Counts, which are the same in every run: bytes that autograd keeps, collectives of a step, and norms in float64.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers.program import options_of, write
from measurements import Configuration

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # which count the same

from support import forked  # noqa: E402
from support.effects import EVERY_PIECE, KEEP_WHOLE, LESS, NO_RECOMPUTATION, ONE_PIECE, norms, step_of  # noqa: E402
from support.one_oracle import IMPORTED, PROGRAMS  # noqa: E402
from support.saved_bytes import predicted_bytes, saved_bytes  # noqa: E402

RANKS = 4
MIB = 2**20

KEEPING: dict[str, tuple[int, bool, dict[str, str]]] = {
    "as in fsdp.py": (1, False, NO_RECOMPUTATION | ONE_PIECE),
    "four pieces": (4, False, NO_RECOMPUTATION),
    "blocks recomputed": (1, True, ONE_PIECE),
    "both": (4, True, {}),
}
SENDING = {"after each piece": EVERY_PIECE, "after the last": {}, "after the last, parameters kept whole": KEEP_WHOLE}


def kept(start: forked.Forked) -> list[Configuration]:
    """Count the bytes that autograd keeps, on the rank that keeps most."""
    rows = []
    for name, (pieces, recompute, edits) in KEEPING.items():
        found = max(saved_bytes(start, LESS, RANKS, edits=edits))
        predicted = max(predicted_bytes(LESS.name, RANKS, pieces=pieces, recompute=recompute))
        samples = {"kept_MiB": [found / MIB], "formula_MiB": [predicted / MIB]}
        rows.append(Configuration(name, {"shows": "recomputation", "change": name}, samples))
    return rows


def sent(start: forked.Forked) -> list[Configuration]:
    """Count the collectives of a step, and the gradients that a rank holds after a piece."""
    rows = []
    for name, edits in SENDING.items():
        step = step_of(start, RANKS, edits)
        samples: dict[str, list[float]] = {kind: [number] for kind, number in step.collectives.items()}
        samples["gradients_MiB"] = [step.gradients / MIB]
        rows.append(Configuration(name, {"shows": "accumulation", "gradients_are_sent": name}, samples))
    return rows


def clipped(start: forked.Forked) -> list[Configuration]:
    """Take the norm of the first gradient on one process, over all shards, and of each shard."""
    one, over_shards, own = norms(start, RANKS)
    found = {"one process": one, "all shards": over_shards}
    found |= {f"rank {rank} alone": norm for rank, norm in enumerate(own)}
    return [
        Configuration(name, {"shows": "clipping", "norm_of": name}, {"norm": [norm]}) for name, norm in found.items()
    ]


def main() -> None:
    """Count all three on one node."""
    options = options_of(__doc__, "fit_less_memory")
    os.environ["OMP_NUM_THREADS"] = "1"

    with tempfile.TemporaryDirectory() as folder, forked.forking(PROGRAMS, *IMPORTED) as process:
        start = forked.Forked(process, Path(folder))
        configurations = [*kept(start), *sent(start), *clipped(start)]
    write(
        options.output,
        configurations,
        versions={"torch": version("torch")},
        parameters={"ranks": RANKS, "across_ranks": "maximum", "backend": "gloo"},
    )


if __name__ == "__main__":
    main()
