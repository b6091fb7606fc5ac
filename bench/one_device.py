"""What makes one device faster: `one_device.py` of the section *Performance*, several times.

python bench/one_device.py                                               # writes bench/results/one_device.json
python bench/one_device.py --output bench/results/one_device_gpu.json    # on a machine with an NVIDIA GPU
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from helpers.program import EXAMPLES, options_of, write
from measurements import Configuration

UNITS = {"tokens/s": "rate_tokensps", "images/s": "rate_imagesps"}


def main() -> None:
    """Measure, and write the file."""
    options = options_of(__doc__, "one_device", repeats=3)
    samples: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, EXAMPLES / "performance" / "one_device.py"], cwd=folder, check=True)
            rows = json.loads(Path(folder, "one-device.json").read_text(encoding="utf-8"))
        first = {row["kind"]: row["rate"] for row in reversed(rows)}
        for row in rows:
            taken = samples.setdefault((row["kind"], row["change"]), {})
            taken.setdefault(UNITS[row["unit"]], []).append(round(row["rate"], 1))
            taken.setdefault("times_as_fast", []).append(round(row["rate"] / first[row["kind"]], 3))
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    write(
        options.output,
        [
            Configuration(f"{kind}, {change}", {"model": kind, "change": change}, row)
            for (kind, change), row in samples.items()
        ],
        versions={"torch": version("torch")},
        parameters={"steps": 7, "warm_up": 3},
        machine=gpu,
    )


if __name__ == "__main__":
    main()
