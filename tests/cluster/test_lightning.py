"""The Lightning guide on a real Slurm: jobs of several sizes from one folder, and their comparison."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recording_files import read_recording, recording_path
from support.proof import Proof
from support.published import stage

from srunbook import cluster
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "slurm" / "lightning"


SIZES = {"single_gpu": (1, 219), "multi_gpu": (4, 55), "multi_node_multi_gpu": (8, 28)}
"""Processes of the three scripts, and their iterations in an epoch."""

SHORT = "multi_node_multi_gpu"
"""The one that runs without `--full`. The others are the same script for fewer GPUs."""

ROW = re.compile(r"(\w+_gpu) +(\d x \d) +(\d) +1 +[\d.]+ +\d+\.\d\d +\d+%")
"""A row of the table: its name, nodes and GPUs, ranks, one job, and three figures that nobody can know before."""


@pytest.fixture(scope="module")
def compared(slurm: State, pytestconfig: pytest.Config) -> tuple[str, dict[str, FinishedJob]]:
    """Submit the scripts at once, as published, and wait for all; return their folder, and the jobs by script."""
    chosen = SIZES if pytestconfig.getoption("--full") else (SHORT,)
    first, *others = (SCRIPTS / f"{name}.sbatch" for name in chosen)
    inside = stage(slurm, first, extra=others)
    submitted = {}
    for name in chosen:
        asked = cluster.capture(slurm, ["sbatch", "--parsable", f"{name}.sbatch"], folder=inside)
        assert asked.returncode == 0, asked.stderr
        submitted[name] = asked.stdout.strip()
    return inside, {name: cluster.await_job(slurm, job) for name, job in submitted.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == SHORT else pytest.mark.full) for name in SIZES]
)
def test_script_runs_as_published(
    slurm: State, proof: Proof, compared: Any, name: str, request: pytest.FixtureRequest
) -> None:
    """A script completes, every rank speaks, with its part of the data, and prints what was recorded."""
    inside, jobs = compared
    script, job = SCRIPTS / f"{name}.sbatch", jobs[name]
    staged = slurm.folder / inside.lstrip("/") / script.name
    starts = [one for one in parse_rank_lines(job.output.splitlines()) if isinstance(one, RankStart)]

    assert staged.read_bytes() == script.read_bytes()
    assert proof.shortcomings(script, job) == [], job.output
    assert {one.world_size for one in starts} == {SIZES[name][0]}
    assert set(re.findall(r": (\d+) iter", job.output)) == {str(SIZES[name][1])}
    if request.config.getoption("--record"):
        proof.record(script, job, home=slurm.specification.slurm == "22.05")
    difference = proof.difference(script, job, read_recording(recording_path(script)))
    assert not difference, f"{difference}\npython -m pytest '{request.node.nodeid}' --record"


@pytest.mark.full
def test_comparison(slurm: State, as_user: Callable[..., str], compared: Any) -> None:
    """The program benchmark.py makes a table of what the jobs on 1, 4 and 8 processes left."""
    inside, _ = compared
    command = "python benchmark.py --output_dir outputs"
    printed = as_user("bash", "-c", f'cd {inside} && PATH="$HOME/torch-env/bin:$PATH" {command}')
    folder = slurm.folder / inside.removeprefix("/") / "outputs"

    assert [row[2] for row in ROW.findall(printed)] == ["1", "4", "8"], printed
    assert {"benchmark.json", "benchmark.png"} <= {path.name for path in folder.iterdir()}
