"""The Lightning guide on one real GPU: training, and mixed precision against float32."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest

from srunbook import simulate
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
LADDER = ROOT / "examples" / "lightning"
EXAMPLES = LADDER / "full"

WITH_PRECISION = (
    f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import train\n"
    "precision = sys.argv.pop(1)\n"
    "train.run(train.read_settings(), train.CloudData, precision=precision)\n"
)
"""The program of the guide, with one more argument of the Trainer."""

pytestmark = [pytest.mark.needs_gpu("torch", "lightning", "tensorboard"), pytest.mark.timeout(600)]


def train(folder: Path, precision: str = "32-true", gpus: int = 1) -> Result:
    """Trains three epochs in one process, on the first GPU or without one."""
    options = ["--epochs=3", f"--output_dir={folder}"]
    env = {"CUDA_VISIBLE_DEVICES": "0" if gpus else ""}
    command = [sys.executable, "-c", WITH_PRECISION, precision, *options]
    return simulate.run(command, gpus_per_node=gpus, timeout=180, env=env)


def last(folder: Path, name: str) -> float:
    """Return the last value of a metric."""
    (path,) = folder.glob("*/metrics.csv")
    with path.open(encoding="utf-8") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row[name]][-1]


def test_one_gpu_trains_as_the_cpu_does(tmp_path: Path) -> None:
    """The unchanged program takes the GPU, makes 219 iterations an epoch, and has nearly the losses of the CPU."""
    result = train(tmp_path / "gpu")
    on_cpu = train(tmp_path / "cpu", gpus=0)

    assert result.returncode == 0, result.failure
    assert on_cpu.returncode == 0, on_cpu.failure
    assert "Training on 1 x 1 GPUs, 32 samples an iteration" in result.output
    assert result.output.count(": 219 iterations") == 3
    start, end = parse_rank_lines(result.output.splitlines())
    assert isinstance(start, RankStart)
    assert isinstance(end, RankEnd)
    assert (start.device, start.world_size, end.steps) == ("cuda:0", 1, 3 * 219)
    assert last(tmp_path / "gpu", "train_loss") == pytest.approx(last(tmp_path / "cpu", "train_loss"), rel=0.05)
    assert last(tmp_path / "gpu", "val_accuracy") > 0.9


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_learns_as_float32(precision: str, tmp_path: Path) -> None:
    """Mixed precision has nearly the loss of float32, and its accuracy."""
    exact = train(tmp_path / "exact")
    mixed = train(tmp_path / "mixed", precision)

    assert exact.returncode == 0, exact.failure
    assert mixed.returncode == 0, mixed.failure
    assert last(tmp_path / "mixed", "train_loss") == pytest.approx(last(tmp_path / "exact", "train_loss"), rel=0.1)
    assert last(tmp_path / "mixed", "val_accuracy") == pytest.approx(last(tmp_path / "exact", "val_accuracy"), abs=0.03)


@pytest.mark.parametrize("program", ["ddp.py", "requeue.py"])
def test_short_program_takes_the_gpu(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short program computes on the GPU, and has the losses of the one for one device up to the GPU's precision."""
    monkeypatch.chdir(tmp_path)
    runs = [
        simulate.run([sys.executable, LADDER / name], gpus_per_node=1, timeout=110) for name in ("one_gpu.py", program)
    ]
    expected, found = ([float(loss) for loss in re.findall(r"loss ([\d.]+)", run.output)] for run in runs)

    assert all(run.returncode == 0 for run in runs), runs[1].failure
    assert "rank 0/1 start " in runs[1].output
    assert "device=cuda:0" in runs[1].output
    assert "warning: " not in runs[1].output
    assert len(found) == 5
    assert found == pytest.approx(expected, rel=0.05)
