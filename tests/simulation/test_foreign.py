"""Training programs for one device, as people outside this project write them, train by themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOREIGN = Path(__file__).with_name("foreign")

LEARNED = 0.8
"""How much of its first loss a program may keep at most; one that does not learn only scatters about it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Make the data of all programs."""
    folder = tmp_path_factory.mktemp("data")
    subprocess.run([sys.executable, FOREIGN / "make_data.py", folder], check=True)
    return folder


@pytest.fixture
def losses(data, tmp_path, monkeypatch):
    """Run a program on its data in an empty folder; return the numbers that follow a label in its output."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(program, name, label):
        command = [sys.executable, FOREIGN / program, data / name]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return [float(number) for number in re.findall(rf"{label} (\S+)", result.stdout)]

    return run


@pytest.mark.full
def test_image_classifier_learns(losses, tmp_path):
    """The classifier's training loss falls, and its best model is saved."""
    first, *_, last = losses("classify_folder.py", "shapes", r"epoch \d+  train loss")

    assert last < LEARNED * first
    assert (tmp_path / "checkpoints" / "model_best.pth").exists()


@pytest.mark.full
def test_character_model_learns(losses, tmp_path):
    """The language model's loss on held-out text falls, and a checkpoint is saved."""
    first, *_, last = losses("char_gpt.py", "tales.txt", r"\| val loss")

    assert last < LEARNED * first
    assert (tmp_path / "ckpt.pt").exists()


def test_table_regression_learns(losses, tmp_path):
    """The regression's training loss falls, and its predictions and errors are written."""
    first, *_, last = losses("fit_table.py", "flats.csv", r"  train loss")

    assert last < LEARNED * first
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"metrics.json", "predictions.csv"}
