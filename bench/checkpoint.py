"""How fast a state is saved and restored: srunbook.checkpoint, torch.save, and a plain copy with fsync.

python bench/checkpoint.py             # 1 GiB, 10 repeats; writes bench/results/checkpoint.json
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from helpers.typed import typed

import srunbook
from srunbook.checkpoint import Checkpoints
from srunbook.measurements import Configuration, Measurement, write_measurement

RESULT = Path(__file__).parent / "results" / "checkpoint.json"
TENSORS = 16


def a_state(size: int, seed: int) -> dict[str, torch.Tensor]:
    """Return random tensors of `size` bytes in all."""
    generator = torch.Generator().manual_seed(seed)
    count = size // 4 // TENSORS
    return {f"layer{number}.weight": torch.randn(count, generator=generator) for number in range(TENSORS)}


def synced(path: Path) -> None:
    """Wait until a file and its name are on the disk."""
    for one in (path, path.parent):
        handle = os.open(one, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


@contextmanager
def timed(samples: dict[str, list[float]], quantity: str, size: int | None = None) -> Iterator[None]:
    """Note the time of a block: in seconds, or as MB/s for a size in bytes."""
    gc.collect()
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    samples.setdefault(quantity, []).append(round(size / 1e6 / seconds if size else seconds, 5))


class Bench:
    """The configurations, each of which saves and restores the state once.

    Args:
        folder: An empty folder on the file system that is measured.
        size: Bytes of the state.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.state = a_state(size, 0)
        self.source = folder / "source"
        torch.save(self.state, self.source)
        synced(self.source)

    def checkpoints(self) -> Checkpoints:
        """Make an empty directory: the removal of old checkpoints is not timed, nor is it for the others."""
        return Checkpoints(self.folder / "checkpoints")

    def copy(self, samples: dict[str, list[float]]) -> None:
        """Copy a file with fsync, and read it once."""
        target = self.folder / "copy"
        with timed(samples, "save_MBps", self.size):
            shutil.copyfile(self.source, target)
            synced(target)
        with timed(samples, "restore_MBps", self.size):
            target.read_bytes()
        target.unlink()

    def torch(self, samples: dict[str, list[float]]) -> None:
        """Save with torch.save and fsync, and load with torch.load."""
        target = self.folder / "torch.pt"
        with timed(samples, "save_MBps", self.size):
            torch.save(self.state, target)
            synced(target)
        with timed(samples, "restore_MBps", self.size):
            restored = torch.load(target, weights_only=True)
        self.check(restored)
        target.unlink()

    def srunbook(self, samples: dict[str, list[float]]) -> None:
        """Save and restore with Checkpoints, with SHA-256."""
        checkpoints = self.checkpoints()
        with timed(samples, "save_MBps", self.size):
            checkpoints.save(1, self.state)
        with timed(samples, "restore_MBps", self.size):
            restored = checkpoints.restore()
        self.check(restored.tensors if restored else {})
        with timed(samples, "remove_s"):
            shutil.rmtree(checkpoints.directory)

    def background(self, samples: dict[str, list[float]]) -> None:
        """Time how long a save in the background stops the training, beside a copy of the tensors in memory."""
        with timed(samples, "copy_in_memory_s"):
            copied = {name: tensor.clone() for name, tensor in self.state.items()}
        del copied
        checkpoints = self.checkpoints()
        with timed(samples, "stall_s"):
            checkpoints.save(1, self.state, background=True)
        with timed(samples, "until_complete_s"):
            checkpoints.wait()
        shutil.rmtree(checkpoints.directory)

    def check(self, restored: dict[str, torch.Tensor]) -> None:
        """Compare what was restored with what was saved."""
        if restored.keys() != self.state.keys() or not all(
            torch.equal(restored[name], tensor) for name, tensor in self.state.items()
        ):
            raise SystemExit("what was restored is not what was saved")


def main() -> None:
    """Take the samples of all configurations in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the state (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--directory", type=Path, default=Path("build"), help="where to write (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()

    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-checkpoint-") as folder:
        bench = Bench(Path(folder), options.size)
        runs: dict[str, Callable[[dict[str, list[float]]], None]] = {
            "plain copy and fsync": bench.copy,
            "torch.save, fsync, torch.load": bench.torch,
            "srunbook.checkpoint": bench.srunbook,
            "srunbook.checkpoint, background": bench.background,
        }
        for run in runs.values():
            run({})
        samples: dict[str, dict[str, list[float]]] = {name: {} for name in runs}
        for _ in range(options.repeats):
            for name, run in runs.items():
                run(samples[name])

    configurations = [Configuration(name, {}, taken) for name, taken in samples.items()]
    for configuration in configurations:
        figures = (f"{quantity} {configuration.median(quantity):.5g}" for quantity in configuration.samples)
        print(f"{configuration.name:32}  {'  '.join(figures)}")
    measurement = Measurement.taken_now(
        typed(),
        configurations,
        versions={"srunbook": srunbook.__version__, "torch": torch.__version__},
        parameters={
            "size_bytes": options.size,
            "tensors": TENSORS,
            "repeats": options.repeats,
            "warm_up": 1,
            "order": "in turn",
            "restore": "from the page cache",
            "removal of old files": "not in save_MBps",
        },
    )
    write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
