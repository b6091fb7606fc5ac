"""One model under four launchers: the same losses step by step, and the same parameters in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "lightning"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

TOLERANCE = 1e-5
"""Largest difference of losses (relative) and parameters (absolute) between one process and two: 2e-7 was seen."""

MISTAKEN = (
    "import runpy, sys; sys.path.insert(0, {folder!r}); from same_model import GlobalBatches\n"
    "right = GlobalBatches.__iter__\n"
    "def wrong(self):\n"
    "    self.rank = 0\n"
    "    return right(self)\n"
    "GlobalBatches.__iter__ = wrong\n"
    "sys.argv = [{program!r}, {kept!r}]\n"
    "runpy.run_path({program!r}, run_name='__main__')\n"
)
"""Runs a program whose loader gives all ranks the same share."""

Run = dict[str, torch.Tensor]

pytestmark = pytest.mark.usefixtures("quick_start")


def alone(*command: str) -> Run:
    """Run a command as one process, outside of any job; return what it kept in the file that it names last."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    environ = {**own, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    run: Run = torch.load(command[-1])
    return run


def as_two_tasks(*command: str) -> Run:
    """Run a command as two tasks of a node; return what rank 0 kept."""
    result = simulate.run([sys.executable, *command], ntasks_per_node=2, env={"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.failure
    run: Run = torch.load(command[-1])
    return run


@pytest.fixture(scope="module")
def runs(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Run the four programs; return what each kept."""
    folder = tmp_path_factory.mktemp("launchers")
    one, srun, torchrun, lightning = (
        (str(EXAMPLES / name), str(folder / f"{name}.pt"))
        for name in ("one_process.py", "srun_ddp.py", "torchrun_ddp.py", "lightning_ddp.py")
    )
    return {
        "one": alone(*one),
        "srun": as_two_tasks(*srun),
        "torchrun": alone(*TORCHRUN, *torchrun),
        "lightning": as_two_tasks(*lightning),
    }


def differences(run: Run, other: Run) -> tuple[float, float]:
    """How far the losses of two runs are apart at most, relatively, and how far the parameters."""
    assert run["losses"].shape == other["losses"].shape
    losses = (run["losses"] / other["losses"] - 1).abs().max()
    return float(losses), float((run["parameters"] - other["parameters"]).abs().max())


@pytest.mark.parametrize("name", ["srun", "torchrun", "lightning"])
def test_two_processes_train_as_one_does(runs: dict[str, Run], name: str) -> None:
    """Under each launcher every loss, and every parameter at the end, is that of one process up to rounding."""
    assert len(runs["one"]["losses"]) == 48
    assert max(differences(runs[name], runs["one"])) < TOLERANCE


@pytest.mark.parametrize("name", ["torchrun", "lightning"])
def test_launchers_agree_to_the_last_bit(runs: dict[str, Run], name: str) -> None:
    """Two processes compute the same bits, whoever has started them."""
    assert torch.equal(runs[name]["losses"], runs["srun"]["losses"])
    assert torch.equal(runs[name]["parameters"], runs["srun"]["parameters"])


def test_wrong_share_is_found(runs: dict[str, Run], tmp_path: Path) -> None:
    """A loader that forgets its rank gives losses and parameters far beyond the tolerance."""
    kept = str(tmp_path / "mistaken.pt")
    code = MISTAKEN.format(folder=str(EXAMPLES), kept=kept, program=str(EXAMPLES / "srun_ddp.py"))
    run = as_two_tasks("-c", code, kept)

    assert min(differences(run, runs["one"])) > 100 * TOLERANCE
