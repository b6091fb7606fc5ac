"""The gloo guide on one real GPU: the same program with BACKEND=nccl."""

from __future__ import annotations

import csv
import importlib.metadata
import sys
from pathlib import Path

import pytest

from srunbook import simulate
from srunbook.ranklog import RankStart, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "gloo_ddp" / "full" / "train_traffic.py"
VERSION = tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])

pytestmark = [
    pytest.mark.needs_gpu("torch"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(VERSION < (2, 13), reason="train_traffic.py needs forward_sync_buffers, of PyTorch 2.13"),
]


def train(folder: Path, backend: str, *options: str) -> Result:
    """Trains in one process, with nccl on the first GPU or with gloo on one CPU."""
    command = [sys.executable, str(PROGRAM), f"--results={folder}", f"--data-dir={folder.parent}", *options]
    return simulate.run(command, gpus_per_node=1, timeout=180, env={"BACKEND": backend})


def column(folder: Path, name: str) -> list[float]:
    """Read a column of metrics.csv."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def test_nccl_trains_as_gloo_does(tmp_path: Path) -> None:
    """The unchanged program takes the GPU for BACKEND=nccl, and has nearly the errors of the CPU."""
    result = train(tmp_path / "gpu", "nccl", "--epochs=3")
    on_cpu = train(tmp_path / "cpu", "gloo", "--epochs=3")

    assert result.returncode == 0, result.failure
    assert on_cpu.returncode == 0, on_cpu.failure
    start = next(line for line in parse_rank_lines(result.output.splitlines()) if isinstance(line, RankStart))
    assert (start.device, start.backend) == ("cuda:0", "nccl")
    assert column(tmp_path / "gpu", "val_mae")[-1] == pytest.approx(column(tmp_path / "cpu", "val_mae")[-1], rel=0.05)
