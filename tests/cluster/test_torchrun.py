"""The torchrun guide on a real Slurm: jobs of several layouts at once, on the same nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.published import stage

from srunbook import cluster
from srunbook.cluster import State
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "torchrun" / "run_distributed.sbatch"

LAYOUTS = {
    "1x1": (["node1"], 1),
    "2x2": (["node1", "node2"], 2),
    "1x3": (["node1"], 3),
    "2x1": (["node2", "node3"], 1),
    "4x1": (["node1", "node2", "node3", "node4"], 1),
}
"""Nodes, and processes on each: one for each GPU, of which a node has four, for all jobs that run at once."""


@pytest.mark.parametrize(
    "together",
    [("1x1", "2x2"), pytest.param(("4x1", "1x3", "2x1"), marks=pytest.mark.full)],
    ids=" ".join,
)
def test_jobs_run_side_by_side(slurm: State, until: Callable[..., object], together: tuple[str, ...]) -> None:
    """Jobs that share node1, where they meet, all complete, each with the world that Slurm allotted."""
    jobs = {}
    for layout in together:
        nodes, processes = LAYOUTS[layout]
        options = [f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"--gpus-per-node={processes}"]
        command = ["sbatch", "--parsable", *options, "--cpus-per-task=4", SCRIPT.name, "--epochs=1"]
        submitted = cluster.capture(slurm, command, folder=stage(slurm, SCRIPT))
        assert submitted.returncode == 0, submitted.stderr
        jobs[layout] = submitted.stdout.strip()
    running = ["squeue", "--noheader", "--states=RUNNING", "--format=%i"]
    until(lambda: {*jobs.values()} <= {*cluster.capture(slurm, running).stdout.split()})

    for layout, identity in jobs.items():
        job, (nodes, processes) = cluster.await_job(slurm, identity), LAYOUTS[layout]
        world = len(nodes) * processes
        lines = list(parse_rank_lines(job.output.splitlines()))
        starts = [line for line in lines if isinstance(line, RankStart)]
        assert job.state == "COMPLETED", job.output
        assert sorted((line.rank, line.world_size) for line in starts) == [(rank, world) for rank in range(world)]
        assert {line.host for line in starts} == set(nodes)
        assert len({line.params for line in lines if isinstance(line, RankEnd)}) == 1
        assert f"(nodes x processes: {len(nodes)} x {processes}, backend: gloo), master node: {nodes[0]}" in job.output
