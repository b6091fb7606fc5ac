"""Preemption by QOS, and own lines of cgroup.conf and gres.conf: Slurm acts upon them, or says why it does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.published import boot, cluster_name

from srunbook import cluster
from srunbook.cluster import ClusterError, Specification, State

OWN = {
    "nodes": {"a": {"count": 1, "cpus": 4, "options": {"Gres": "tmpdisk:100"}}},
    "partitions": {"batch": {}},
    "preemption": {"by": "qos", "send_user_signal": True},
    "qos": {"low": {"preempt_mode": "REQUEUE", "grace_time": 3}, "high": {"preempt": ["low"]}},
    "slurm.conf": "GresTypes=tmpdisk\n",
    "gres.conf": "NodeName=node1 Name=tmpdisk Count=100 Flags=CountOnly\n",
    "cgroup.conf": "AllowedRAMSpace=90\n",
}

LOW = """\
#!/bin/bash
#SBATCH --qos=low --exclusive --signal=B:USR1@60 --time=02:00:00 --output=low.log --open-mode=append
trap 'echo got USR1 at $SECONDS; sync' USR1
touch ready
while true; do sleep 0.1 & wait $!; done
"""


@pytest.fixture(scope="module")
def site(pytestconfig: pytest.Config, generation: str) -> Iterator[State]:
    """Boot a cluster whose QOS preempt each other."""
    name = cluster_name(pytestconfig, "preempt", generation)
    cluster.down(name)
    yield boot(Specification(**{**OWN, "name": name, "slurm": generation}))
    cluster.down(name)


def test_a_qos_preempts_another(site: State, tmp_path: Path, until: Callable[..., object]) -> None:
    """A job of the lower QOS gets the signal that it asked for, has its grace time, and is queued again."""
    script = tmp_path / "low.sbatch"
    script.write_text(LOW, encoding="utf-8")
    folder = cluster.stage(site, script)
    there = site.folder / folder.lstrip("/")
    low = cluster.capture(site, ["sbatch", "--parsable", "low.sbatch"], folder=folder).stdout.strip()
    until((there / "ready").exists)
    wrap = ["sbatch", "--parsable", "--qos=high", "--exclusive", "--output=/dev/null", "--wrap=true"]
    high = cluster.capture(site, wrap).stdout.strip()
    until(lambda: "got USR1" in (there / "low.log").read_text())

    assert cluster.await_job(site, high).state == "COMPLETED"
    shown = ["scontrol", "show", "job", low]
    until(lambda: re.search(r"Restarts=[12]\b", cluster.capture(site, shown).stdout))  # 24.11 counts two
    cluster.capture(site, ["scancel", low])


def test_own_lines_hold(site: State) -> None:
    """A resource of gres.conf is there to be asked for, up to its number; a setting of cgroup.conf is in force."""
    few = cluster.capture(site, ["srun", "--gres=tmpdisk:60", "hostname"])
    many = cluster.capture(site, ["srun", "--gres=tmpdisk:101", "hostname"])

    assert few.stdout == "node1\n", few.stderr
    assert "Requested node configuration is not available" in many.stderr
    if site.plugins["cgroup"] != "disabled":
        assert "AllowedRAMSpace         = 90.0%" in cluster.capture(site, ["scontrol", "show", "config"]).stdout


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("cgroup.conf", "AllowedRAMSpase=90\n", "unrecognized key: AllowedRAMSpase"),
        ("gres.conf", "NodeName=node1 Kind=gpu\n", "unrecognized key: Kind"),
    ],
)
def test_lines_that_slurm_refuses(pytestconfig: pytest.Config, file: str, line: str, words: str) -> None:
    """A cluster with a line that Slurm does not take ends with Slurm's words, and nothing is left."""
    name = cluster_name(pytestconfig, "line")
    try:
        with pytest.raises(ClusterError, match=f"(?s)Slurm refuses the configuration.*{words}"):
            cluster.up(Specification(**{"name": name, "slurm": "22.05", "nodes": 1, file: line}))
        assert cluster.read_state(name) is None
    finally:
        cluster.down(name)
