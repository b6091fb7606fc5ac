"""How much time and memory `srunbook verify` takes to read what a job left behind, by its size.

python bench/verify_reading.py         # writes bench/results/verify_reading.json; needs 1 GiB of disk
python bench/verify_reading.py --sizes 0 1 16 --repeats 1 --output /tmp/x.json
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers.program import options_of, write
from measurements import Configuration

VERIFY = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "verify"]
START = "rank 0/1 start host=node1 pid=7 backend=gloo job=17\n"
END = "rank 0/1 end steps=5 params=abababababab\n"
ONCE = 1024
"""MiB from which on a size is measured once."""


def training(number: int) -> str:
    """Return what rank 0 prints in an epoch: its progress, a warning of a library, a line of numbers."""
    progress = "".join(f"\r{step:3} %|{'#' * (step // 5):20}| loss 0.{step:02}" for step in range(0, 100, 5))
    return f"{progress}\n[W] rank 0 waits for data\nepoch {number}/99  train_loss 0.123456  val_loss 0.234567\n"


def table(number: int) -> str:
    """Return a line of metrics.csv with the columns of the gloo guide."""
    return f"{number},0.123456,0.234567,3.2149,4.5551,2.5,400.0,0.1,2.4,,81.5\n"


def unbroken(_number: int) -> str:
    """Return a piece of a line that does not end."""
    return "x" * 1024


KINDS: dict[str, tuple[str, str, Callable[[int], str]]] = {
    "log of a training": ("rank_0.log", START, training),
    "log of rank lines": ("rank_0.log", "", lambda _number: START),
    "log of one line": ("rank_0.log", START, unbroken),
    "metrics.csv": ("metrics.csv", "epoch,a,b,c,d,e,f,g,h,i,j\n", table),
}


def pieces(text: Callable[[int], str], size: int) -> Iterator[str]:
    """Yield about `size` MiB of text."""
    left, number = size * 2**20, 1
    while left > 0:
        piece = "".join(text(number + place) for place in range(256))
        yield piece
        left -= len(piece)
        number += 256


def lay_out(folder: Path, kind: str, size: int) -> None:
    """Write a folder of results, in which one file has `size` MiB."""
    name, beginning, text = KINDS[kind]
    folder.mkdir()
    if name != "rank_0.log":
        (folder / "rank_0.log").write_text(START + END)
    with (folder / name).open("w") as file:
        file.write(beginning)
        file.writelines(pieces(text, size))
        file.write(f"\n{END}" if name == "rank_0.log" else "")


def measure(folder: Path) -> dict[str, float]:
    """Verify a folder in a process of its own; return its wall and processor time, and its peak of memory."""
    started = time.perf_counter()
    child = subprocess.Popen([*VERIFY, folder], stdout=subprocess.DEVNULL, env={**os.environ, "PATH": "/nowhere"})
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode == 2:  # it read nothing
        raise SystemExit(f"verify ended with status {child.returncode} on {folder.name}")
    return {
        "wall_s": round(wall, 3),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "peak_MiB": round(used.ru_maxrss / 1024, 1),
    }


def main() -> None:
    """Take the samples of each kind and size; the sizes of a kind in turn."""
    options = options_of(__doc__, "verify_reading", sizes=[0, 1, 16, 64, 256, ONCE], repeats=3)

    configurations = []
    with tempfile.TemporaryDirectory() as place:
        for kind in KINDS:
            for size in options.sizes:
                folder = Path(place) / "mine_17"
                lay_out(folder, kind, size)
                samples = [measure(folder) for _ in range(1 if size >= ONCE else options.repeats)]
                shutil.rmtree(folder)
                series = {name: [sample[name] for sample in samples] for name in samples[0]}
                configurations.append(Configuration(f"{kind}, {size} MiB", {"kind": kind, "size_MiB": size}, series))
    write(options.output, configurations, parameters={"repeats": options.repeats, "repeats_of_largest": 1})


if __name__ == "__main__":
    main()
