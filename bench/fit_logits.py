"""Bytes that autograd keeps on a rank of a Llama with many words, with and without `loss_parallel`.

python bench/fit_logits.py         # writes bench/results/fit_logits.json
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers.fit_kept_bytes import saved_bytes
from helpers.fit_trainings import PROGRAMS
from helpers.program import options_of, write
from measurements import Configuration

sys.path.insert(0, str(PROGRAMS))

from llama import make_small

PROGRAM = PROGRAMS / "llama_fsdp_tp.py"
RANKS = 4
WORDS = 32_000
MIB = 2**20
WHOLE = {
    "with loss_parallel():": "if True:",
    "model(x).flatten": "model(x).full_tensor().flatten",
    ".full_tensor()\n": "\n",
}
"""What makes each rank collect the logits of all words."""


def main() -> None:
    """Count on every rank; a sample is the rank that keeps most, for the count is the same in every run."""
    options = options_of(__doc__, "fit_logits")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        weights = Path(name, "weights")
        make_small(weights, vocab_size=WORDS)
        for way, edits in (("whole on each rank", WHOLE), ("loss_parallel", {})):
            kept = saved_bytes(PROGRAM, RANKS, edits, (weights, RANKS))
            samples = {"kept_MiB": [max(kept) / MIB], "logits_MiB": [4 * 32 * 32 * WORDS / MIB]}
            rows.append(Configuration(way, {"logits": way, "vocabulary": WORDS, "ranks": RANKS}, samples))
            print(way, kept, flush=True)
    write(options.output, rows, versions={"torch": version("torch")}, parameters={"across_ranks": "maximum"})


if __name__ == "__main__":
    main()
