"""The chapter *The bad node* on a real Slurm: a node with a slow link, a full disk, or without a network.

`pytest tests/cluster/test_bad_node.py --record` writes what the jobs printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.proof import job_run
from support.published import stage

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import State, faults

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm" / "runs_that_last" / "preflight.sbatch"

SPOKEN = re.compile(r"node\d+ (ok|bad):|^Send|^scontrol|good, the training|back into the queue|rank \d+/|epoch \d+: ")
SPEEDS = (
    Mask(r"[\d,]+( instead of [\d,]+)? (MB|GFLOP)/s", r"<n> \2/s", "speeds differ from run to run"),
    Mask(r"took \d+ s", "took <n> s", "machines are not equally fast"),
)


@contextmanager
def small_disk(state: State, node: str) -> Iterator[None]:
    """Leave no room on the local disk of a node."""

    def resize(size: str) -> None:
        command = ["mount", "-o", f"remount,size={size}", "/tmp"]
        done = cluster.capture(state, command, machine=node, user=None)
        assert done.returncode == 0, done.stderr

    asked = ["findmnt", "--noheadings", "--output=OPTIONS", "/tmp"]
    (size,) = re.findall(r"size=(\w+)", cluster.capture(state, asked, machine=node).stdout)
    resize("1m")
    yield
    resize(size)


def submitted(state: State, as_user: Callable[..., str], options: str = "", edit: tuple[str, str] = ("", "")) -> str:
    """Submit the job script, perhaps with a changed line; return the job's number."""
    inside = stage(state, SCRIPT)
    if edit[0]:
        script = state.folder / inside.removeprefix("/") / SCRIPT.name
        text = script.read_text(encoding="utf-8")
        assert text.count(edit[0]) == 1
        script.write_text(text.replace(*edit), encoding="utf-8")
    return as_user("bash", "-c", f"cd {inside} && sbatch --parsable {options} {SCRIPT.name}").strip()


def test_slow_link(healed: State, as_user: Callable[..., str], recorded: Callable[..., None]) -> None:
    """Of three nodes, the one with the slow link is named, and the job trains on the two others."""
    faults.link(healed, "50mbit", ["node2"])
    job = cluster.await_job(healed, submitted(healed, as_user, "--nodelist=node[1-3]"))

    assert job.state == "COMPLETED", job.output
    assert re.findall(r"^(node\d) (ok|bad): ", job.output, re.MULTILINE) == [
        ("node1", "ok"),
        ("node2", "bad"),
        ("node3", "ok"),
    ]
    assert {*re.findall(r"rank \d/4 start host=(\S+)", job.output)} == {"node1", "node3"}
    assert job.output.count("epoch 4: loss") == 1
    recorded(SCRIPT, job_run(healed, SCRIPT, job), SPOKEN.search, SPEEDS)


@pytest.mark.full
def test_requeue_without_bad_node(
    healed: State, as_user: Callable[..., str], until: Any, recorded: Callable[..., None]
) -> None:
    """With too few good nodes, the job goes back into the queue, keeps what it excluded, and trains elsewhere."""
    with small_disk(healed, "node1"):
        job = submitted(healed, as_user, "--nodes=2 --exclude=node4", ("spare=1", "spare=0"))
        asked = ["scontrol", "show", "job", job]
        until(lambda: "JobState=PENDING Reason=BeginTime" in as_user(*asked))
        until(lambda: "ExcNodeList=node1,node4" in as_user(*asked))
        done = cluster.await_job(healed, job)

    assert done.state == "COMPLETED", done.output
    assert "node1 bad: disk: 0.00 GB free in /tmp, less than 1" in done.output
    assert {*re.findall(r"rank \d/4 start host=(\S+)", done.output)} == {"node2", "node3"}
    assert done.output.count("epoch 4: loss") == 1
    recorded(SCRIPT, job_run(healed, SCRIPT, done), SPOKEN.search, SPEEDS, name="requeued")


@pytest.mark.full
def test_silent_node(healed: State, as_user: Callable[..., str]) -> None:
    """A node that doesn't reach the others is left out after a minute."""
    faults.drop(healed, ["node3"])
    job = cluster.await_job(healed, submitted(healed, as_user, "--nodelist=node[1-3]"))

    assert job.state == "COMPLETED", job.output
    assert "node3 bad: " in job.output
    assert {*re.findall(r"rank \d/4 start host=(\S+)", job.output)} == {"node1", "node2"}
