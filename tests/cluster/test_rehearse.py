"""A job script rehearsed at full size, and the failures that come with the number of nodes.

`pytest tests/cluster/test_rehearse.py --record` writes the recordings of the entries anew, and with `--full` those of
the rehearsal, which takes 256 nodes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.kept_jobs import check_output, keep
from support.published import cluster_name

from srunbook import cluster
from srunbook.cluster import Specification, State, faults

ROOT = Path(__file__).resolve().parents[2]
REHEARSE = ROOT / "examples" / "rehearse"
STAND_IN = REHEARSE / "stand_in.py"
FAILURES = ROOT / "examples" / "failures"

BROKEN = (
    r"^rank 0/{ranks} host=node2 local_rank=0 gpu=0 master=node10:\d+ arguments: --batch-size={size}$",
    r"^OSError: .* \(while attempting to bind on address \('node10', ",
)
FIXED = (
    r"^rank 0/{ranks} host=node2 local_rank=0 gpu=0 master=node2:\d+ arguments: --batch-size=2$",
    r"^rank {last}/{ranks} host=node{nodes} local_rank=1 gpu=1$",
    r"^{ranks} ranks met; on {used} nodes there are 2 to 2 of them$",
    r"^GPUs with two ranks: \[\]$",
)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("generation", "nodes"), [("22.05", 12), pytest.param(cluster.NEWEST, 256, marks=pytest.mark.full)]
)
def test_rehearsal(pytestconfig: pytest.Config, request: Any, tmp_path: Path, generation: str, nodes: int) -> None:
    """A sorted list of hosts leads to the wrong node from the tenth on, and the stand-in shows it; 256 are recorded."""
    name = cluster_name(pytestconfig, "rehearse")
    cluster.down(name)
    state = cluster.up(Specification(name=name, slurm=generation, nodes=nodes))
    jobs = {}
    try:
        faults.drain(state, "node1")
        shutil.copy(STAND_IN, tmp_path / "train.py")
        for script in (REHEARSE / "broken.sbatch", REHEARSE / "fixed.sbatch"):
            shutil.copy(script, tmp_path)
            options = [f"--nodes={nodes - 1}"]
            jobs[script] = cluster.submit(state, tmp_path / script.name, options=options)
    finally:
        cluster.down(name)

    ranks = 2 * (nodes - 1)
    figures = {"ranks": ranks, "last": ranks - 1, "nodes": nodes, "used": nodes - 1, "size": 256 // ranks}
    for (script, job), patterns in zip(jobs.items(), (BROKEN, FIXED), strict=True):
        essential = [pattern.format(**figures) for pattern in patterns]
        check_output(script, job, essential)
        if nodes == 256:
            keep(request, state, script, job, essential)
    assert [job.state for job in jobs.values()] == ["FAILED", "COMPLETED"]


ENTRIES = {  # files, whose versions matter, message of the broken script, what the fixed one prints
    "nodes-open-files": (
        tuple((FAILURES / "nodes-open-files").glob("*")),
        ("torch",),
        r"Too many open files",
        r"^4 ranks, the sum is 6; rank 0 has \d+ open files$",
    ),
    "nodes-batch-of-zero": (
        tuple((FAILURES / "nodes-batch-of-zero").glob("*")),
        ("torch",),
        r"^ValueError: batch_size should be a positive integer value, but got batch_size=0$",
        r"^(3 ranks do not divide the batch: it is 3 now|batch of this rank: 1; of all 3 ranks: 3$)",
    ),
    "nodes-tasks-per-node": (
        tuple((FAILURES / "nodes-tasks-per-node").glob("*")),
        (),
        r"^ValueError: invalid literal for int\(\) with base 10: '2\(x3\)'$",
        r"^local rank \d of 2, 6 ranks in all$",
    ),
}


@pytest.mark.parametrize("slug", ENTRIES)
def test_entry(slurm: State, request: Any, slug: str) -> None:
    """The broken script of an entry ends with its message, and the fixed one does what it should."""
    files, libraries, message, good = ENTRIES[slug]
    extra = [path for path in files if path.suffix == ".py"]
    broken, fixed = (FAILURES / slug / "broken.sbatch", FAILURES / slug / "fixed.sbatch")
    failed = cluster.submit(slurm, broken, extra=extra)
    ended = cluster.submit(slurm, fixed, extra=extra)

    assert (failed.state, ended.state) == ("FAILED", "COMPLETED"), failed.output + ended.output
    for script, job, pattern in ((broken, failed, message), (fixed, ended, good)):
        check_output(script, job, [pattern])
        if slurm.specification.slurm == "22.05":
            keep(request, slurm, script, job, [pattern], *libraries)
