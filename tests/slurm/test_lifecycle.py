"""A cluster leaves no trace: after `down`, after a crash at any point, and beside another cluster."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from srunbook import cluster
from srunbook.cluster import Specification
from srunbook.cluster._state import STOP_AT, folder_of, names

SMALL = "22.05"
COMMAND = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "cluster"]


PORTS = {f"{port:04X}" for port in (3306, 6817, 6818, 6819)}
"""Ports of MariaDB and of Slurm's daemons, as /proc/net/tcp writes them."""

PROGRAMS = re.compile(r"(\S*/)?(slurm\w*|munged|mariadbd|tini|nsenter|unshare|sleep infinity|\S+ \S*/slurm_script)\b")
"""How the command lines of a cluster's processes begin; other sessions run scripts whose folders are called slurm."""


def traces() -> dict[str, set[str]]:
    """What a cluster could leave on the host."""
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if PROGRAMS.match(words):
            processes.add(f"{folder.name} {words}")
    namespaces = set()
    for kind in ("net", "mnt", "uts", "pid", "ipc"):
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                namespaces.add(f"{(folder / 'ns' / kind).readlink()}")
            except OSError:
                continue
    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/srunbook-*")}
    return {
        "processes": processes,
        "namespaces": namespaces,
        "interfaces": {path.name for path in Path("/sys/class/net").iterdir()},
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "sockets": {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:] if "/" in line},
        "listening": {
            line.split()[1]
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and line.split()[1].rpartition(":")[2] in PORTS
        },
        "cgroups": groups,
        "records": set(names()),
    }


@pytest.fixture
def no_trace():
    """Compares what is on the host before and after a test."""
    before = traces()
    yield
    deadline = time.monotonic() + 10
    left = {"": {""}}
    while any(left.values()) and time.monotonic() < deadline:
        after = traces()
        left = {
            kind: after[kind] - before[kind]
            for kind in before
            if kind not in ("namespaces", "sockets", "listening") or len(after[kind]) > len(before[kind])
        }
        time.sleep(0.1)

    assert not any(left.values()), left


def test_down_leaves_no_trace(no_trace):
    """After `up` and `down` there is no process, namespace, interface, mount, socket or cgroup that was not before."""
    before = traces()
    state = cluster.up(Specification(name="trace", slurm=SMALL, nodes=2))
    during = traces()
    grown = {kind for kind in before if during[kind] - before[kind]}

    assert {"processes", "namespaces", "cgroups", "records"} <= grown
    assert not {"interfaces", "mounts", "listening"} & grown
    assert cluster.down("trace")
    assert not state.folder.exists()
    assert not cluster.down("trace")


def test_down_ends_running_jobs(no_trace):
    """`down` does not wait for jobs."""
    state = cluster.up(Specification(name="busy", slurm=SMALL, nodes=2))
    submitted = cluster.capture(state, ["sbatch", "-N2", "--wrap=srun bash -c 'setsid sleep 300 & sleep 300'"])
    assert submitted.returncode == 0
    running = ["bash", "-c", "until pgrep -x sleep -u alice; do sleep 0.1; done"]
    assert cluster.capture(state, running, user=None, member="node1", timeout=30).returncode == 0

    assert cluster.down("busy")


@pytest.mark.parametrize("phase", ["recorded", "supervised", "space", "connected", "started"])
def test_up_after_an_interrupted_up(no_trace, phase):
    """`up` that was killed at any phase is cleared away by the next `up`, which works."""
    options = ["--name", "broken", "--slurm", SMALL, "--nodes", "1"]
    killed = subprocess.run([*COMMAND, "up", *options], env={**os.environ, STOP_AT: phase}, check=False, timeout=60)

    assert killed.returncode == -signal.SIGKILL
    assert (folder_of("broken") / "state.json").exists()
    state = cluster.up(Specification(name="broken", slurm=SMALL, nodes=1))
    assert cluster.capture(state, ["srun", "hostname"], timeout=30).stdout == "node1\n"
    assert cluster.down("broken")


@pytest.mark.parametrize("phase", ["supervised", "connected"])
def test_down_after_an_interrupted_up(no_trace, phase):
    """`down` clears away what a killed `up` had made."""
    options = ["--name", "halfway", "--slurm", SMALL, "--nodes", "1"]
    subprocess.run([*COMMAND, "up", *options], env={**os.environ, STOP_AT: phase}, check=False, timeout=60)

    assert cluster.down("halfway")


def test_ctrl_c_undoes_an_up(no_trace):
    """Ctrl-C during `up` leaves nothing."""
    cluster.down("ctrlc")  # of an earlier, broken run
    process = subprocess.Popen([*COMMAND, "up", "--name", "ctrlc", "--slurm", SMALL, "--nodes", "2"])
    record = folder_of("ctrlc") / "state.json"
    deadline = time.monotonic() + 30
    while not (record.exists() and '"space"' in record.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)

    assert process.wait(timeout=30) != 0
    assert not record.exists()


def test_two_clusters_run_at_once(no_trace):
    """Two clusters with the same node names do not see each other's jobs."""
    one = cluster.up(Specification(name="one", slurm=SMALL, nodes=1))
    two = cluster.up(Specification(name="two", slurm=SMALL, nodes=2))
    counted = [cluster.capture(state, ["sinfo", "-h", "-o", "%D", "-p", "batch"]).stdout for state in (one, two)]
    jobs = [cluster.capture(state, ["srun", "bash", "-c", "echo $SLURM_JOB_ID"]).stdout for state in (one, two)]

    assert counted == ["1\n", "2\n"]
    assert jobs == ["1\n", "1\n"]
    assert cluster.down("one")
    assert cluster.capture(two, ["srun", "-N2", "hostname"], timeout=30).returncode == 0
    assert cluster.down("two")


def test_a_dead_supervisor_takes_all_with_it(no_trace):
    """When the one process on record is killed from outside, `down` still clears the rest, and `up` works."""
    state = cluster.up(Specification(name="orphan", slurm=SMALL, nodes=1))
    assert state.supervisor is not None
    os.kill(state.supervisor[0], signal.SIGKILL)

    deadline = time.monotonic() + 10
    while state.alive and time.monotonic() < deadline:
        time.sleep(0.02)

    with pytest.raises(cluster.ClusterError, match="is up"):
        cluster.running_state("orphan")
    assert cluster.down("orphan")
