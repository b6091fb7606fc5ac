"""The torchrun guide on one real GPU: NCCL in place of gloo, mixed precision against float32, resume."""

from __future__ import annotations

import csv
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from srunbook import simulate
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
LADDER = ROOT / "examples" / "torchrun"
EXAMPLES = LADDER / "full"

pytestmark = pytest.mark.needs_gpu("torch", "matplotlib")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate files in the form of MNIST, so that nothing has to be installed: a bright square for each class."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for name, count in (("train", 1280), ("t10k", 200)):
        labels = rng.integers(0, 10, count).astype(np.uint8)
        pixels = rng.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(pixels, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[row * 9 : row * 9 + 8, column * 7 : column * 7 + 7] = 250
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (folder / f"{name}-{kind}-ubyte").write_bytes(head + values.tobytes())
    return folder


def on_gpu(program: str, images: Path, folder: Path, *arguments: str, gpus: int = 1) -> Result:
    """Run a program with one torchrun and one process, on the GPU or without it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    options = ["--dataset=mnist", f"--data-dir={images}", f"--checkpoint-dir={folder}", "--epochs=3", *arguments]
    env = {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
    return simulate.run([*launcher, EXAMPLES / program, *options], nodes=1, gpus_per_node=gpus, timeout=110, env=env)


def losses(folder: Path) -> list[float]:
    """Loss of each epoch."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("program", ["train_distributed.py", "train_vision.py"])
def test_program_takes_the_gpu_and_nccl(program: str, images: Path, tmp_path: Path) -> None:
    """A program of the guide says GPUs and nccl, learns, and ends with the losses of the CPU up to their precision."""
    result = on_gpu(program, images, tmp_path / "gpu")
    on_cpu = on_gpu(program, images, tmp_path / "cpu", gpus=0)

    assert result.returncode == 0, result.failure
    assert on_cpu.returncode == 0, on_cpu.failure
    assert "on 1 GPUs (nodes x processes: 1 x 1, backend: nccl)" in result.output
    start, end = parse_rank_lines(result.output.splitlines())
    assert isinstance(start, RankStart)
    assert isinstance(end, RankEnd)
    assert (start.device, start.backend) == ("cuda:0", "nccl")
    assert losses(tmp_path / "gpu")[0] == pytest.approx(losses(tmp_path / "cpu")[0], rel=0.02)
    assert float(re.findall(r"Test Accuracy: ([\d.]+)%", result.output)[-1]) > 80


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_learns_as_float32(precision: str, images: Path, tmp_path: Path) -> None:
    """Mixed precision has nearly the losses of float32."""
    exact = on_gpu("train_vision.py", images, tmp_path / "exact")
    mixed = on_gpu("train_vision.py", images, tmp_path / "mixed", f"--precision={precision}")

    assert exact.returncode == 0, exact.failure
    assert mixed.returncode == 0, mixed.failure
    assert losses(tmp_path / "mixed")[0] == pytest.approx(losses(tmp_path / "exact")[0], rel=0.05)


def test_resume_on_a_gpu(images: Path, tmp_path: Path) -> None:
    """A resumed training has the loss of one without a break, up to the order in which a GPU adds."""
    in_one_go = on_gpu("train_distributed.py", images, tmp_path / "one")
    first = on_gpu("train_distributed.py", images, tmp_path / "two", "--epochs=1")
    resumed = on_gpu("train_distributed.py", images, tmp_path / "two", "--resume")

    assert {in_one_go.returncode, first.returncode, resumed.returncode} == {0}
    assert "Resuming after epoch 1" in resumed.output
    assert losses(tmp_path / "two")[-1] == pytest.approx(losses(tmp_path / "one")[-1], rel=0.05, abs=1e-3)


@pytest.mark.parametrize("program", ["ddp.py", "resume.py", "requeue.py", "mixed_precision.py", "validate_ddp.py"])
def test_short_program_takes_the_gpu(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short program computes on the GPU, and has the losses of the one for one device up to the GPU's precision."""
    monkeypatch.chdir(tmp_path)
    alone = LADDER / ("validate_one_gpu.py" if "validate" in program else "one_gpu.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    runs = [
        simulate.run(command, nodes=1, gpus_per_node=1, timeout=110)
        for command in ([sys.executable, alone], [*launcher, LADDER / program])
    ]
    expected, found = ([float(loss) for loss in re.findall(r"loss ([\d.]+)", run.output)] for run in runs)

    assert all(run.returncode == 0 for run in runs), runs[1].failure
    assert "rank 0/1 start " in runs[1].output
    assert "device=cuda:0" in runs[1].output
    assert found[:3] == pytest.approx(expected[:3], rel=0.05)
