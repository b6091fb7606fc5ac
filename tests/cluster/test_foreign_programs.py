"""Other people's programs, converted as the torchrun guide says: the guide's job script trains them on four nodes."""

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

COMMANDS = {
    "char_gpt.py": "tales.txt --steps 24 --eval_every 8 --eval_batches 2 --dim 32 --layers 1 --sample_len 5",
    "classify_folder.py": "shapes --epochs 1 --batch-size 80 --print-freq 1",
    "fit_table.py": "flats.csv --epochs 12 --patience 1 --learning-rate 0.02 --hidden 16 --dropout 0",
}
"""Data and options."""


def losses(text: str) -> list[float]:
    """Return all losses and errors that were printed."""
    return [float(number) for number in re.findall(r"(?:loss|RMSE) +([\d.]+)", text)]


@pytest.mark.parametrize("name", ["char_gpt.py", *(pytest.param(x, marks=pytest.mark.full) for x in [*COMMANDS][1:])])
def test_losses_on_four_nodes(name: str, slurm: State, tmp_path: Path) -> None:
    """A converted program prints the losses of the original, and all ranks end."""
    environ = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    for program, *arguments in (["make_data.py", "."], [name, *COMMANDS[name].split()]):
        command = [sys.executable, str(FOREIGN / program), *arguments]
        alone = subprocess.run(command, cwd=tmp_path, env=environ, check=True, capture_output=True, text=True)
    folder = stage(slurm, SCRIPT, extra=[*FOREIGN.glob("converted/*.py"), FOREIGN / "make_data.py"])
    made = cluster.capture(slurm, ["sh", "-c", "~/torch-env/bin/python make_data.py ."], folder=folder)
    assert made.returncode == 0, made.stderr
    options = ["--nodes=4", "--gpus-per-node=1", "--cpus-per-task=1"]
    job = cluster.submit(slurm, SCRIPT, [name, *COMMANDS[name].split()], options=options, folder=folder)

    assert job.state == "COMPLETED", job.output
    assert len(losses(alone.stdout)) > 5
    # In float32 the same terms are added in another order, and the programs print six digits.
    assert losses(job.output) == pytest.approx(losses(alone.stdout), rel=1e-5, abs=2e-6)
