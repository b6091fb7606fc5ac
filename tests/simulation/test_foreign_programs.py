"""Somebody else's program, converted as the torchrun guide says, prints on several processes what it prints on one."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = Path(__file__).with_name("foreign")
BEFORE, CONVERTED = FOREIGN / "fit_table.py", FOREIGN / "converted" / "fit_table.py"

OPTIONS = ["--epochs", "12", "--patience", "1", "--learning-rate", "0.02", "--hidden", "16", "--dropout", "0"]
"""Without dropout, which draws other numbers on each process. All have to decide alike when to stop early."""

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")

Run = Callable[..., tuple[list[float], list[list[float]]]]


def test_page_says_how_many_lines() -> None:
    """The conversion adds or changes as many lines as the guide says."""
    before, after = (path.read_text(encoding="utf-8").splitlines() for path in (BEFORE, CONVERTED))
    new = [line[2:].strip() for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    lines = [line for line in new if line and not line.startswith("#")]
    page = (ROOT / "docs" / "guides" / "torchrun" / "convert.md").read_text(encoding="utf-8")

    assert f"converted in {len(lines)} lines" in page, "\n".join(lines)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program on the same table; return the losses that it prints, and the rows that it predicts."""
    table = tmp_path / "flats.csv"
    subprocess.run([sys.executable, FOREIGN / "make_data.py", table], check=True)

    def start(program: Path, *launcher: str) -> tuple[list[float], list[list[float]]]:
        command = [sys.executable, *launcher, program, table, *OPTIONS]
        environ = os.environ | {"OMP_NUM_THREADS": "1"}
        text = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout
        assert text.count("no improvement for 1 epochs, stopping") == 1, text
        rows = (tmp_path / "results" / "predictions.csv").read_text(encoding="utf-8").splitlines()[1:]
        losses = [float(number) for number in re.findall(r"(?:loss|RMSE) +([\d.]+)", text)]
        return losses, [[*map(float, row.split(","))] for row in rows]

    return start


def test_several_processes_print_what_one_does(run: Run, tmp_path: Path) -> None:
    """Four processes print the losses of one, stop as early and write one table; a lost line shows."""
    expected, predicted = run(BEFORE)
    losses, table = run(CONVERTED, *TORCHRUN, "4")
    wrong = tmp_path / "wrong.py"
    text = CONVERTED.read_text(encoding="utf-8")
    wrong.write_text(text.replace("[rank::world_size]", ""), encoding="utf-8")

    assert len(expected) >= 10
    # In float32 the same terms are added in another order, and the program prints six digits.
    assert losses == pytest.approx(expected, rel=1e-5, abs=2e-6)
    assert len(table) == len(predicted) == 150
    assert [row[-1] for row in table] == pytest.approx([row[-1] for row in predicted], rel=1e-3, abs=0.1)
    assert run(wrong, *TORCHRUN, "2")[0] != pytest.approx(expected, rel=1e-4, abs=2e-5)
