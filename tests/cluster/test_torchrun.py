"""The torchrun guide on a real Slurm: one script on every layout, and several jobs at once on the same nodes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.published import stage

from srunbook import cluster
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm" / "torchrun" / "run_distributed.sbatch"

AFTER_ONE_EPOCH = 1e-5
"""Relative difference to one process: float32 sums in another order, before training has amplified them."""

ACCURACY = 0.97
LAYOUTS = {
    "1x1": (("node1",), 1),
    "1x4": (("node1",), 4),
    "2x1": (("node2", "node3"), 1),
    "2x2": (("node1", "node2"), 2),
    "4x1": (("node1", "node2", "node3", "node4"), 1),
}
"""Nodes, and processes on each: one for each GPU, of which a node has four."""

SIDE_BY_SIDE = (("1x1", "2x2"), ("4x1", "1x4", "2x1"))
"""Jobs that run at the same time. Some share node1, where they have their rendezvous; the second group with `--full`.

By default 2x2, with several nodes and several processes on each, stands against one process.
"""

GROUPS = [SIDE_BY_SIDE[0], pytest.param(SIDE_BY_SIDE[1], marks=pytest.mark.full)]
OTHERS = ["2x2", *(pytest.param(layout, marks=pytest.mark.full) for layout in SIDE_BY_SIDE[1])]


class Trained:
    """A job that has trained.

    Args:
        job: The job.
        folder: Where it was submitted, on the host.
    """

    def __init__(self, job: FinishedJob, folder: Path) -> None:
        self.job = job
        self.folder = folder

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Rows of metrics.csv."""
        with (self.folder / "checkpoints" / self.job.identity / "metrics.csv").open(encoding="utf-8") as file:
            return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def start(slurm: State, layout: str) -> tuple[str, Path]:
    """Submit the published script for a layout; return the job's number and its folder on the host."""
    nodes, processes = LAYOUTS[layout]
    inside = stage(slurm, SCRIPT)
    options = [f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", f"--gpus-per-node={processes}"]
    command = ["sbatch", "--parsable", *options, "--cpus-per-task=4", SCRIPT.name]
    submitted = cluster.capture(slurm, command, folder=inside)
    assert submitted.returncode == 0, submitted.stderr
    return submitted.stdout.strip(), slurm.folder / inside.removeprefix("/")


@pytest.fixture(scope="module")
def trained(slurm: State, until: Any) -> Callable[[str], Trained]:
    """Return the job of a layout; the first question about a group runs its jobs at once."""
    known: dict[str, Trained] = {}

    def run(group: tuple[str, ...]) -> None:
        started = {layout: start(slurm, layout) for layout in group}
        ours = {identity for identity, _ in started.values()}
        running = ["squeue", "--noheader", "--states=RUNNING", "--format=%i"]
        until(lambda: ours <= set(cluster.capture(slurm, running).stdout.split()))
        for layout, (identity, folder) in started.items():
            known[layout] = Trained(cluster.await_job(slurm, identity), folder)

    def find(layout: str) -> Trained:
        if layout not in known:
            run(next(group for group in SIDE_BY_SIDE if layout in group))
        return known[layout]

    return find


@pytest.mark.parametrize("together", GROUPS, ids=" ".join)
def test_jobs_run_side_by_side(trained: Callable[[str], Trained], together: tuple[str, ...]) -> None:
    """Jobs of several layouts at once on shared nodes all complete, each with the world that Slurm allotted."""
    for layout in together:
        job, (nodes, processes) = trained(layout).job, LAYOUTS[layout]
        world = len(nodes) * processes
        lines = list(parse_rank_lines(job.output.splitlines()))
        starts = sorted((line for line in lines if isinstance(line, RankStart)), key=lambda one: one.rank)
        assert job.state == "COMPLETED", job.output
        assert [(line.rank, line.world_size) for line in starts] == [(rank, world) for rank in range(world)]
        assert {line.host for line in starts} == set(nodes)
        assert len({line.params for line in lines if isinstance(line, RankEnd)}) == 1
        assert f"(nodes x processes: {len(nodes)} x {processes}, backend: gloo), master node: {nodes[0]}" in job.output


@pytest.mark.parametrize("layout", OTHERS)
def test_layout_trains_as_one_process_does(trained: Callable[[str], Trained], layout: str) -> None:
    """A layout has the losses of one process after an epoch, and ends with the accuracy that the guide promises."""
    found, expected = trained(layout).metrics, trained("1x1").metrics

    assert len(found) == len(expected) == 10
    for name in ("train_loss", "test_loss"):
        assert found[0][name] == pytest.approx(expected[0][name], rel=AFTER_ONE_EPOCH)
    assert found[-1]["test_accuracy"] >= ACCURACY
