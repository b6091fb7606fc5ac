"""The commands of the page "Looking into a running job", each tried on a job that runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from support.patience import PATIENCE

from srunbook import cluster

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
#SBATCH --nodelist=node1,node2
#SBATCH --ntasks-per-node=2
srun "$HOME/jax-env/bin/python" stuck.py
"""

PROGRAM = """\
import os
import time
from pathlib import Path


def wait_for_a_friend():
    while True:
        time.sleep(0.1)


Path("ready-" + os.environ["SLURM_PROCID"]).touch()
wait_for_a_friend()
"""


@pytest.fixture(scope="module")
def running(slurm, until, tmp_path_factory):
    """Submit a job of four tasks on two nodes that never ends by itself."""
    script = tmp_path_factory.mktemp("running") / "stuck.sbatch"
    script.write_text(SCRIPT)
    (script.parent / "stuck.py").write_text(PROGRAM)
    folder = cluster.stage(slurm, script)
    submitted = cluster.capture(slurm, ["sbatch", "--parsable", script.name], folder=folder)
    job = submitted.stdout.strip()
    there = slurm.folder / folder.lstrip("/")
    until(lambda: len(list(there.glob("ready-*"))) == 4)
    yield job
    cluster.capture(slurm, ["scancel", job])


def test_squeue_and_scontrol_say_where_it_runs(as_user, running):
    """Squeue shows the job and its step, scontrol its nodes and its log."""
    assert "R" in as_user("squeue", "--me", "--format=%i %t %N").split()
    assert f"{running}.0" in as_user("squeue", "--me", "--steps")
    assert "NodeList=node[1-2]" in as_user("scontrol", "show", "job", running)


def test_overlap_gets_into_its_nodes(as_user, running):
    """A second step with `--overlap` runs beside the first one, on the node that is asked for."""
    shown = as_user(
        "srun", f"--jobid={running}", "--overlap", "-N1", "-n1", "-w", "node2", "ps", "-ww", "-u", "alice", "-o", "cmd"
    )

    assert "stuck.py" in shown


def test_py_spy_shows_where_a_rank_stands(as_user, running):
    """py-spy, run as a step of the job, shows the line at which a Python process waits."""
    py_spy = Path(sys.prefix) / "bin" / "py-spy"
    dump = f'for pid in $(pgrep -u $USER python); do {py_spy} dump --pid "$pid"; done'
    shown = as_user("srun", f"--jobid={running}", "--overlap", "-N1", "-n1", "-w", "node2", "bash", "-c", dump)

    assert shown.count("wait_for_a_friend (stuck.py:8)") == 2


def test_sstat_shows_what_it_uses(as_user, running):
    """Sstat shows the memory of the running step, once it has been sampled."""
    deadline = time.monotonic() + PATIENCE
    columns = ["--noheader", "--parsable2", "--format=JobID,NTasks,MaxRSS"]
    row = as_user("sstat", f"--jobs={running}.0", *columns).strip().split("|")
    while row[-1] in ("", "0") and time.monotonic() < deadline:
        time.sleep(0.5)
        row = as_user("sstat", f"--jobs={running}.0", *columns).strip().split("|")

    assert row[:2] == [f"{running}.0", "4"]
    assert row[2] not in ("", "0")


def test_sacct_shows_it_after_its_end(slurm, as_user):
    """After scancel, sacct shows that the job was cancelled, and by whom."""
    job = as_user("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep infinity").strip()
    as_user("scancel", job)
    rows = cluster.account(slurm, job)

    assert rows[0]["State"] == "CANCELLED by 20001"


def test_salloc_gives_a_shell_that_holds_nodes(as_user):
    """Inside salloc, srun runs on the allocated nodes at once."""
    names = as_user("salloc", "-N2", "srun", "hostname").split()

    assert len(set(names)) == 2
    assert set(names) <= {"node1", "node2", "node3", "node4"}
