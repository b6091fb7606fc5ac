"""Run everything that needs an NVIDIA GPU, in pieces of less than nine minutes, and say what is still missing.

python bench/on_gpu.py                   # all pieces that haven't passed yet, in this order
python bench/on_gpu.py one_device        # this piece

Needs PyTorch and JAX; a piece that needs more says so. What a piece printed and measured goes to build/gpu/, or to the
folder of `--output`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 530
"""Seconds for a piece."""

MEASURED = {
    "one_device_gpu": ["one_device.py"],
    "fit_gpu": ["fit_gpu.py"],
    "gpu_digits": ["gpu_digits.py"],
    "lightning_gpu": ["lightning_gpu.py"],
    "svgd_gpu": ["svgd_speed.py", "--particles=16384", "--dimensions=16"],
}
"""Results, and the benchmarks that write them."""

TESTED = ("performance", "torchrun", "jax_multinode", "gloo_ddp", "lightning", "does_not_fit", "failures")
PYTEST = ["-m", "pytest", "-rs"]

PIECES = {
    **{name: [f"bench/{words[0]}", *words[1:], f"--output={{folder}}/{name}.json"] for name, words in MEASURED.items()},
    **{f"test_{name}": [*PYTEST, f"tests/gpu/test_{name}.py"] for name in TESTED},
}
"""What Python runs for each piece, most wanted first."""


def run(name: str, folder: Path) -> dict[str, object]:
    """Run a piece; return how it ended, and the end of what it printed."""
    command = [sys.executable, *(word.format(folder=folder) for word in PIECES[name])]
    environ = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}  # it may hide the GPU
    environ["PYTHONPATH"] = str(ROOT / "src")
    start = time.monotonic()
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    end = (folder / f"{name}.log").read_text(encoding="utf-8").strip().splitlines()[-1:]
    skipped = status == 0 and any("skipped" in line for line in end)
    result = "skipped" if skipped else "passed" if status == 0 else f"status {status}"
    return {"result": result, "seconds": round(time.monotonic() - start), "end": "".join(end)}


def main() -> int:
    """Run the pieces, and keep after each what is known."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pieces", nargs="*", metavar="PIECE", help=f"of {', '.join(PIECES)}")
    parser.add_argument("--output", type=Path, help="folder for results and logs")
    options = parser.parse_args()
    if unknown := {*options.pieces} - {*PIECES}:
        parser.error(f"no such piece: {', '.join(sorted(unknown))}; there are {', '.join(PIECES)}")
    folder = (options.output or ROOT / "build" / "gpu").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "pieces.json"
    known = json.loads(state.read_text(encoding="utf-8")) if state.exists() else {}
    for name in options.pieces or [name for name in PIECES if known.get(name, {}).get("result") != "passed"]:
        known[name] = run(name, folder)
        state.write_text(json.dumps(known, indent=1), encoding="utf-8")
        print(f"{name:20} {known[name]['result']:10} {known[name]['seconds']:4} s  {known[name]['end']}", flush=True)
    missing = [name for name in PIECES if known.get(name, {}).get("result") != "passed"]
    print("missing: " + (", ".join(missing) or "nothing"))
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
