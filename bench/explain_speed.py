"""How long `srunbook explain` takes to read the logs of all ranks of a job, and how much memory.

python bench/explain_speed.py         # writes bench/results/explain_speed.json; needs 100 MB of disk
python bench/explain_speed.py --ranks 4 --megabytes 8 --repeats 1 --output /tmp/x.json
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from helpers.program import options_of, write
from measurements import Configuration

PROGRAM = """
import resource, sys
from srunbook.cli import main
try:
    main(prog_name="srunbook")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
MESSAGE = "[rank{rank}]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:33164\n"
CAUSE = "[rank{rank}]: RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: \
you tried to allocate 1125899906842624 bytes.\n"


def training(draw: random.Random, step: int) -> str:
    """Return what a rank prints in a step: numbers, a progress bar, now and then a warning."""
    bar = "".join(f"\r{part:3}%|{'#' * (part // 10):10}| {draw.random():.2f} s/it" for part in range(0, 101, 25))
    warning = f"[W1123 10:00:{step % 60:02}.5 data.py:7] rank waited {draw.random():.3f} s for data\n"
    return f"2026-11-20 10:{step % 60:02}:00 step {step} loss {draw.random():.6f}\n{bar}\n" + warning * (step % 50 == 0)


def unlike(draw: random.Random, step: int) -> str:
    """Return a line that no other line is like."""
    return f"sample {draw.randbytes(12).hex()} of {draw.randbytes(8).hex()} is done at step {step}\n"


KINDS: dict[str, Callable[[random.Random, int], str]] = {"training": training, "lines that all differ": unlike}


def write_logs(folder: Path, text: Callable[[random.Random, int], str], ranks: int, size: int) -> list[Path]:
    """Write a log for each rank; one rank fails, and all others lose their connection to it."""
    paths = []
    for rank in range(ranks):
        draw, path = random.Random(rank), folder / f"rank_{rank}.log"
        with path.open("w", encoding="utf-8") as file:
            step = 0
            while file.tell() < size / ranks:
                file.write("".join(text(draw, step + more) for more in range(100)))
                step += 100
            file.write((CAUSE if rank == ranks // 2 else MESSAGE).format(rank=rank))
        paths.append(path)
    return paths


def explained(paths: list[Path], culprit: int) -> tuple[float, float]:
    """Return seconds and MB at most; check that the cause is right."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "explain", *paths], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode or not done.stdout.startswith(f"The first failure: rank {culprit}, "):
        raise SystemExit(f"srunbook explain ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return seconds, int(done.stderr.split()[-1]) / 1000


def main() -> None:
    """Take the samples in turn."""
    options = options_of(__doc__, "explain_speed", ranks=64, megabytes=100, repeats=5)

    samples: dict[str, list[tuple[float, ...]]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in KINDS.items():
            logs = write_logs(Path(folder), text, options.ranks, options.megabytes * 10**6)
            explained(logs, options.ranks // 2)  # page cache
            samples[name] = [explained(logs, options.ranks // 2) for _ in range(options.repeats)]
    configurations = []
    for name, taken in samples.items():
        series = {name: [round(one[place], 2) for one in taken] for place, name in enumerate(("wall_s", "peak_MB"))}
        configurations.append(Configuration(name, {"logs": name}, series))
    write(
        options.output,
        configurations,
        parameters={
            "ranks": options.ranks,
            "megabytes": options.megabytes,
            "repeats": options.repeats,
            "cores": len(os.sched_getaffinity(0)),
        },
    )


if __name__ == "__main__":
    main()
