"""The helpers around the gloo training: the one that submits, and those that sum up scaling and timings.

On the real Slurm they run in tests/cluster.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import stand_ins

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gloo_ddp" / "full"
HELPER = ROOT / "scripts" / "run_multinode.sh"

STAND_INS = {
    "sbatch": 'printf "%s\\n" "$@" >submitted; echo "17;cluster"',
    "squeue": "[[ -e ended ]] || echo RUNNING; touch ended",
    "sacct": 'if [[ "$*" == *--allocations* ]]; then [[ -e ended ]] && cat state || echo "RUNNING|0:0"; '
    'else echo "JobID|State"; fi',
}


class Folder:
    """A folder with the helper, the script it submits, and stand-ins for Slurm's commands.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        stand_ins(path, **STAND_INS)
        (path / "ddp_2node_cpu.sbatch").touch()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the helper here."""
        environ = {**os.environ, "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}"}
        command = ["bash", HELPER, *arguments]
        return subprocess.run(command, cwd=self.path, env=environ, capture_output=True, text=True, check=False)

    @property
    def submitted(self) -> list[str]:
        """What sbatch was given, or nothing."""
        path = self.path / "submitted"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Make the folder of somebody who wants to submit."""
    return Folder(tmp_path)


def test_defaults_are_submitted(folder: Folder) -> None:
    """Without options the helper submits two nodes and ten epochs, and says number, results and the next command."""
    result = folder.run()

    assert result.returncode == 0, result.stderr
    assert folder.submitted == ["--parsable", "--nodes=2", "ddp_2node_cpu.sbatch", "--epochs=10"]
    assert re.findall(r"^(\w+): +(.*)$", result.stdout, re.MULTILINE) == [
        ("job", "17"),
        ("results", "results/ddp_cpu_17"),
        ("log", "ddp_cpu_17.out, and as a link results/ddp_cpu_17.out once the job runs"),
        ("next", "bash verify_multinode.sh 17"),
    ]
    assert (folder.path / "results").is_dir()


def test_options_are_passed_on(folder: Folder) -> None:
    """Every option reaches sbatch or the program, in one piece."""
    slurm = ["--partition", "gpu-node", "--account", "your-account", "--time", "1-00:00:00"]
    result = folder.run("--nodes", "4", "--epochs", "20", *slurm, "--", "--data", "a b.h5")

    assert result.returncode == 0, result.stderr
    assert folder.submitted == [
        *("--parsable", "--nodes=4", "--partition=gpu-node", "--account=your-account", "--time=1-00:00:00"),
        *("ddp_2node_cpu.sbatch", "--epochs=20", "--data", "a b.h5"),
    ]


def test_dry_run_submits_nothing(folder: Folder) -> None:
    """A dry run says the command, quoted, submits nothing and leaves nothing behind."""
    result = folder.run("--dry-run", "--", "--data", "a b.h5")

    assert result.returncode == 0
    assert result.stdout.endswith("'ddp_2node_cpu.sbatch' '--epochs=10' '--data' 'a b.h5'\n")
    assert folder.submitted == []
    assert not (folder.path / "results").exists()


def test_nonsense_is_refused_before_it_is_submitted(folder: Folder) -> None:
    """What cannot be is refused with status 2 and one sentence, and sbatch is not called."""
    result = folder.run("--nodes", "0")

    assert result.returncode == 2
    assert result.stderr.startswith("error: --nodes '0': give a whole number from 1 on")
    assert folder.submitted == []


@pytest.mark.parametrize(
    ("state", "status"),
    [("FAILED|2:0", 2), ("CANCELLED by 7|0:0", 1), ("OUT_OF_MEMORY|0:125", 253)],
)
def test_wait_ends_with_the_status_of_the_job(state: str, status: int, folder: Folder) -> None:
    """After --wait the accounting is written whole, and the helper's status is that of the job."""
    (folder.path / "state").write_text(state + "\n")
    result = folder.run("--wait")
    results = folder.path / "results" / "ddp_cpu_17"

    assert result.returncode == status, result.stdout + result.stderr
    assert [path.name for path in results.iterdir()] == ["sacct_summary.txt"]
    assert f"state:   {state.split('|')[0]}, exit code {state.split('|')[1]}" in result.stdout


# Sums ----------------------------------------------------------------------------------------------------------------


def python(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the example."""
    command = [sys.executable, EXAMPLES / program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_scaling_table(tmp_path: Path) -> None:
    """Speed-up is against the smallest number of nodes, first epochs do not count, and all samples are kept."""
    for nodes, samples in ((1, (100, 110)), (2, (180, 180)), (4, (200, 220))):
        for repeat, rate in enumerate(samples, 1):
            run = tmp_path / f"nodes-{nodes}-repeat-{repeat}"
            run.mkdir()
            rows = ["epoch,throughput_samples_per_sec", "1,5", f"2,{rate}", f"3,{rate + 2}"]
            (run / "metrics.csv").write_text("\n".join(rows))
    result = python("scaling_summary.py", tmp_path)
    table = [line.split() for line in result.stdout.splitlines()[1:]]

    assert result.returncode == 0, result.stderr
    assert [(row[0], row[2], row[5], row[6]) for row in table] == [
        ("1", "106.0", "1.00", "100%"),
        ("2", "181.0", "1.71", "85%"),
        ("4", "211.0", "1.99", "50%"),
    ]
    assert json.loads((tmp_path / "scaling.json").read_text())["samples"]["1"] == [101.0, 111.0]


COLUMNS = "rank,host,epoch,data_load_time_sec,compute_time_sec,all_reduce_time_sec,epoch_time_sec"
"""Of timings.csv."""


def name_slow_nodes(folder: Path, rows: list[tuple[int, int, float, float]]) -> tuple[int, str]:
    """Status and last line of slow_nodes.py, from ranks, epochs, and seconds of computing and of waiting."""
    lines = [f"{rank},node{rank},{epoch},0.1,{work},{wait},2.0" for rank, epoch, work, wait in rows]
    (folder / "timings.csv").write_text("\n".join([COLUMNS, *lines]))
    result = python("slow_nodes.py", folder)
    return result.returncode, result.stdout.splitlines()[-1]


def test_slow_rank_is_named(tmp_path: Path) -> None:
    """Of three ranks the one that takes longer for each step is named, by its host."""
    rows = [(rank, epoch, 1.9 if rank == 2 else 0.4, 0.1) for epoch in (1, 2) for rank in range(3)]
    slow = "slow: rank 2 on node2, 4.0 times as long as the others"

    assert name_slow_nodes(tmp_path, rows) == (1, slow)


def test_equal_ranks_are_not_slow(tmp_path: Path) -> None:
    """Where all ranks work for nearly as long, none is named, however long the first epoch took."""
    rows = [(0, 1, 9.0, 0.1), (1, 1, 1.0, 8.1), (0, 2, 1.0, 0.2), (1, 2, 1.1, 0.1)]
    none = "no rank works for more than 1.5 times as long as the others"

    assert name_slow_nodes(tmp_path, rows) == (0, none)
