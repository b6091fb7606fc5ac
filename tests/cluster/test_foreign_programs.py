"""Other people's programs, converted as the torchrun guide says: the guide's job script trains them on four nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.published import stage

from srunbook import cluster
from srunbook.cluster import State
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ROOT / "tests" / "simulation" / "foreign"
SCRIPT = ROOT / "slurm" / "torchrun" / "ddp.sbatch"

NODES = 4
EXACT = 1e-5
"""Largest relative difference of a number in float32: the same terms, added in another order."""

LAST_DIGIT = 2e-6
"""What rounding to the six digits that the programs print may add to it."""

COMMANDS = {
    "char_gpt.py": "tales.txt --steps 24 --eval_every 8 --eval_batches 2 --dim 32 --layers 1 --sample_len 5",
    "classify_folder.py": "shapes --epochs 1 --batch-size 80 --print-freq 1",
    "fit_table.py": "flats.csv --epochs 12 --patience 1 --learning-rate 0.02 --hidden 16 --dropout 0",
}
"""Data and options. The last batch of the images holds 3, one fewer than there are processes."""

STARTS = ("char_gpt.py", "classify_folder.py")
"""Programs that were given the line with which every rank starts."""


def losses(text: str) -> list[float]:
    """Return all losses and errors that were printed."""
    return [float(number) for number in re.findall(r"(?:loss|RMSE) +([\d.]+)", text)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[float]]:
    """Return what a program as it was found prints on one device."""
    folder = tmp_path_factory.mktemp("alone")
    environ = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}

    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, str(FOREIGN / name), *arguments]
        return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout

    run("make_data.py", ".")
    return lambda name: losses(run(name, *COMMANDS[name].split()))


@pytest.fixture(scope="module")
def folder(slurm: State) -> str:
    """Put the published script, the programs and their data into a folder that all nodes see."""
    folder = stage(slurm, SCRIPT, extra=[*FOREIGN.glob("converted/*.py"), FOREIGN / "make_data.py"])
    made = cluster.capture(slurm, ["sh", "-c", "~/torch-env/bin/python make_data.py ."], folder=folder)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in STARTS else pytest.mark.full) for name in COMMANDS]
)
def test_losses_on_four_nodes(name: str, folder: str, slurm: State, alone: Callable[[str], list[float]]) -> None:
    """A converted program prints the losses of the original, once, and all ranks end."""
    options = [f"--nodes={NODES}", "--gpus-per-node=1", "--cpus-per-task=1"]
    job = cluster.submit(slurm, SCRIPT, [name, *COMMANDS[name].split()], options=options, folder=folder)
    expected = alone(name)
    starts = [line for line in parse_rank_lines(job.output.splitlines()) if isinstance(line, RankStart)]

    assert job.state == "COMPLETED", job.output
    assert len(expected) > 5
    assert losses(job.output) == pytest.approx(expected, rel=EXACT, abs=LAST_DIGIT)
    if name in STARTS:
        assert {(start.rank, start.host) for start in starts} == {(rank, f"node{rank + 1}") for rank in range(NODES)}
