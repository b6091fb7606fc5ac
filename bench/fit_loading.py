"""Memory that a rank needs to load the weights of a Llama from one file into the parts of FSDP.

python bench/fit_loading.py         # writes bench/results/fit_loading.json
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from helpers.fit_trainings import PROGRAMS, run_ranks
from helpers.program import options_of, write
from measurements import Configuration

sys.path.insert(0, str(PROGRAMS))

from llama import make_small

PROGRAM = Path(__file__).with_name("ranks") / "fit_loading.py"
RANKS = 4
MIB = 2**20
WAYS = ("each rank reads its parts", "rank 0 reads the file and sends", "each rank reads the file")
SHAPE = {"vocab_size": 32_000, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 16}


def main() -> None:
    """Load in each way; a sample is the rank that needed most."""
    options = options_of(__doc__, "fit_loading", runs=5)
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        weights = Path(name, "weights")
        make_small(weights, **SHAPE)
        size = (weights / "model.safetensors").stat().st_size / MIB
        for number in range(options.runs):
            for way in WAYS:
                folder = Path(name, f"{number} {way}")
                folder.mkdir()
                printed = run_ranks(PROGRAM.read_text(encoding="utf-8"), (weights, way), 1, RANKS, folder)
                needed = [int(found) / MIB for found in re.findall(r"^needed \d (\d+)$", printed, re.MULTILINE)]
                samples[way].append(max(needed))
                print(way, needed, flush=True)
    rows = [Configuration(way, {"way": way}, {"file_MiB": [size], "most_MiB": found}) for way, found in samples.items()]
    write(options.output, rows, versions={"torch": version("torch")}, parameters={"ranks": RANKS, "backend": "gloo"})


if __name__ == "__main__":
    main()
