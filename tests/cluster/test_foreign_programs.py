"""Somebody else's program, converted as the torchrun guide says: the guide's job script trains it on four nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.published import stage

from srunbook import cluster
from srunbook.cluster import State

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ROOT / "tests" / "simulation" / "foreign"
SCRIPT = ROOT / "slurm" / "torchrun" / "ddp.sbatch"
COMMAND = [
    "fit_table.py",
    "flats.csv",
    "--epochs",
    "12",
    "--patience",
    "1",
    "--learning-rate",
    "0.02",
    "--hidden",
    "16",
    "--dropout",
    "0",
]


def losses(text: str) -> list[float]:
    """Return all losses and errors that were printed."""
    return [float(number) for number in re.findall(r"(?:loss|RMSE) +([\d.]+)", text)]


def test_losses_on_four_nodes(slurm: State, tmp_path: Path) -> None:
    """A converted program prints the losses of the original, and all ranks end."""
    environ = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    for program, *arguments in (["make_data.py", "flats.csv"], COMMAND):
        command = [sys.executable, str(FOREIGN / program), *arguments]
        alone = subprocess.run(command, cwd=tmp_path, env=environ, check=True, capture_output=True, text=True)
    folder = stage(slurm, SCRIPT, extra=[FOREIGN / "converted" / "fit_table.py", tmp_path / "flats.csv"])
    options = ["--nodes=4", "--gpus-per-node=1", "--cpus-per-task=1"]
    job = cluster.submit(slurm, SCRIPT, COMMAND, options=options, folder=folder)

    assert job.state == "COMPLETED", job.output
    assert len(losses(alone.stdout)) > 5
    # In float32 the same terms are added in another order, and the programs print six digits.
    assert losses(job.output) == pytest.approx(losses(alone.stdout), rel=1e-5, abs=2e-6)
