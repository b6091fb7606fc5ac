"""The torchrun guide on a real Slurm: one script on every layout, and several jobs at once on the same nodes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srunbook import cluster
from srunbook.cluster import Job, State
from srunbook.formats import EndRecord, StartRecord, parse_records

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

SIDE_BY_SIDE = (("1x1", "2x2", "4x1"), ("1x4", "2x1"))
"""Jobs that run at the same time. The first three share node1, where all of them have their rendezvous."""


class Trained:
    """A job that has trained.

    Args:
        job: The job.
        folder: Where it was submitted, on the host.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.folder = folder

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Rows of metrics.csv."""
        with (self.folder / "checkpoints" / self.job.identity / "metrics.csv").open(encoding="utf-8") as file:
            return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def start(slurm: State, as_user: Callable[..., str], layout: str) -> tuple[str, Path]:
    """Submits the published script for a layout; returns the job's number and its folder on the host."""
    nodes, processes = LAYOUTS[layout]
    inside = cluster.stage(slurm, SCRIPT)
    options = f"--nodes={len(nodes)} --nodelist={','.join(nodes)} --gpus-per-node={processes} --cpus-per-task=4"
    printed = as_user("bash", "-c", f"cd {inside} && sbatch --parsable {options} {SCRIPT.name}")
    return printed.strip(), slurm.folder / inside.removeprefix("/")


@pytest.fixture(scope="module")
def trained(slurm: State) -> dict[str, Trained]:
    """What has trained so far on this cluster."""
    return {}


@pytest.mark.parametrize("together", SIDE_BY_SIDE, ids=" ".join)
def test_jobs_run_side_by_side(
    slurm: State, as_user: Callable[..., str], until: Any, trained: dict[str, Trained], together: tuple[str, ...]
) -> None:
    """Jobs of several layouts at once on shared nodes all complete, each with the world that Slurm allotted."""
    started = {layout: start(slurm, as_user, layout) for layout in together}
    ours = {identity for identity, _ in started.values()}
    until(lambda: ours <= set(as_user("squeue", "--noheader", "--states=RUNNING", "--format=%i").split()), 60)
    for layout, (identity, folder) in started.items():
        trained[layout] = Trained(cluster.await_job(slurm, identity, timeout=400), folder)

    for layout in together:
        job, (nodes, processes) = trained[layout].job, LAYOUTS[layout]
        world = len(nodes) * processes
        records = list(parse_records(job.output.splitlines()))
        starts = sorted((record for record in records if isinstance(record, StartRecord)), key=lambda one: one.rank)
        assert job.state == "COMPLETED", job.output
        assert [(record.rank, record.world_size) for record in starts] == [(rank, world) for rank in range(world)]
        assert {record.host for record in starts} == set(nodes)
        assert len({record.params_sha256 for record in records if isinstance(record, EndRecord)}) == 1
        assert f"(nodes x processes: {len(nodes)} x {processes}, backend: gloo), master node: {nodes[0]}" in job.output


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "1x1"])
def test_layout_trains_as_one_process_does(trained: dict[str, Trained], layout: str) -> None:
    """A layout has the losses of one process after an epoch, and ends with the accuracy that the guide promises."""
    if not {layout, "1x1"} <= trained.keys():
        pytest.fail("the jobs of the test before have not run: choose the whole file")
    found, expected = trained[layout].metrics, trained["1x1"].metrics

    assert len(found) == len(expected) == 10
    for name in ("train_loss", "test_loss"):
        assert found[0][name] == pytest.approx(expected[0][name], rel=AFTER_ONE_EPOCH)
    assert found[-1]["test_accuracy"] >= ACCURACY
