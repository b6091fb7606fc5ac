"""A job script rehearsed at full size, and the failures that come with the number of nodes.

`pytest tests/cluster/test_rehearse.py --record` writes the recordings of the entries anew, and with `--full` those of
the rehearsal, which takes 256 nodes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.proof import check_entry
from support.published import cluster_name, submit_all

from recordings.comparing import Mask
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


def matched(pattern: str) -> Mask:
    """Compare only what a pattern matches of a line."""
    return Mask(f".*?({pattern}).*", r"\1", "what a library says around its message differs between versions")


@pytest.mark.alone
@pytest.mark.parametrize(
    ("generation", "nodes"), [("22.05", 12), pytest.param(cluster.NEWEST, 256, marks=pytest.mark.full)]
)
def test_rehearsal(pytestconfig: pytest.Config, recorded: Any, tmp_path: Path, generation: str, nodes: int) -> None:
    """A sorted list of hosts leads to the wrong node from the tenth on, and the stand-in shows it; 256 are recorded."""
    name = cluster_name(pytestconfig, "rehearse")
    cluster.down(name)
    state = cluster.up(Specification(name=name, slurm=generation, nodes=nodes))
    try:
        faults.drain(state, "node1")
        shutil.copy(STAND_IN, tmp_path / "train.py")
        scripts = REHEARSE / "broken.sbatch", REHEARSE / "fixed.sbatch"
        options = [f"--nodes={nodes - 1}"]
        # One after the other: both together would share out the GPUs of the nodes.
        jobs = [submit_all(state, script, extra=[tmp_path / "train.py"], options=options)[0] for script in scripts]
    finally:
        cluster.down(name)

    ranks = 2 * (nodes - 1)
    figures = {"ranks": ranks, "last": ranks - 1, "nodes": nodes, "used": nodes - 1, "size": 256 // ranks}
    for script, job, patterns in zip(scripts, jobs, (BROKEN, FIXED), strict=True):
        essential = [pattern.format(**figures) for pattern in patterns]
        assert [pattern for pattern in essential if not re.search(pattern, job.output, re.MULTILINE)] == [], job.output
        if nodes == 256:
            command = f"sbatch {script.name}"
            only = [matched(pattern) for pattern in essential]
            check_entry(recorded, state, script, command, job.output, essential, job.exit_status, job.rows, only)
    assert [job.state for job in jobs] == ["FAILED", "COMPLETED"]


ENTRIES = {  # message of the broken script, what the fixed one prints
    "nodes-open-files": (
        r"Too many open files",
        r"^4 ranks, the sum is 6; rank 0 has \d+ open files$",
    ),
    "nodes-batch-of-zero": (
        r"^ValueError: batch_size should be a positive integer value, but got batch_size=0$",
        r"^(3 ranks do not divide the batch: it is 3 now|batch of this rank: 1; of all 3 ranks: 3$)",
    ),
    "nodes-tasks-per-node": (
        r"^ValueError: invalid literal for int\(\) with base 10: '2\(x3\)'$",
        r"^local rank \d of 2, 6 ranks in all$",
    ),
}


@pytest.mark.parametrize("slug", ENTRIES)
def test_entry(slurm: State, entry: Any, slug: str) -> None:
    """The broken script of an entry ends with its message, and the fixed one does what it should."""
    message, good = ENTRIES[slug]
    scripts = FAILURES / slug / "broken.sbatch", FAILURES / slug / "fixed.sbatch"
    jobs = submit_all(slurm, *scripts, extra=[*(FAILURES / slug).glob("*.py")])

    assert [job.state for job in jobs] == ["FAILED", "COMPLETED"], jobs[0].output + jobs[1].output
    for script, job, pattern in zip(scripts, jobs, (message, good), strict=True):
        command = f"sbatch {script.name}"
        entry(script, command, job.output, [pattern], job.exit_status, job.rows, [matched(pattern)])
