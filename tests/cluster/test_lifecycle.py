"""A cluster leaves no trace: after `down`, after a crash at any point, and beside another cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from support.killed import COMMAND, draw, end
from support.patience import PATIENCE
from support.published import cluster_name
from support.traces import adopting_orphans, traces

from srunbook import cluster
from srunbook.cluster import Specification, faults
from srunbook.cluster._daemons import dead_daemons
from srunbook.cluster._state import STOP_AT, folder_of

SMALL = "22.05"
PHASES = ("recorded", "supervised", "space", "connected", "started")
"""What `up` goes through, one after the other."""


@pytest.fixture
def name(pytestconfig: pytest.Config) -> Callable[[str], str]:
    """Return names of clusters that no other worker has."""
    return lambda word: cluster_name(pytestconfig, word)


@pytest.fixture
def now(pytestconfig: pytest.Config) -> Iterator[Callable[[], dict[str, set[str]]]]:
    """Return what clusters of this worker have on the host."""
    with adopting_orphans():
        yield lambda: traces(f"{cluster_name(pytestconfig)}-")


@pytest.fixture
def no_trace(now: Callable[[], dict[str, set[str]]]) -> Iterator[None]:
    """Compare what is on the host before and after a test."""
    before = now()
    yield
    deadline = time.monotonic() + PATIENCE
    left = {"": {""}}
    while any(left.values()) and time.monotonic() < deadline:
        after = now()
        left = {kind: after[kind] - before[kind] for kind in before}
        time.sleep(0.1)

    assert not any(left.values()), left


def test_down_leaves_no_trace(no_trace, now, name):
    """`down` does not wait for jobs, and leaves no process, namespace, interface, mount, socket or cgroup."""
    before = now()
    state = cluster.up(Specification(name=name("trace"), slurm=SMALL, nodes=2))
    during = now()
    grown = {kind for kind in before if during[kind] - before[kind]}

    assert {"processes", "namespaces", "cgroups", "records"} <= grown
    assert not {"interfaces", "mounts", "listening", "sockets"} & grown
    submitted = cluster.capture(
        state, ["sbatch", "-N2", "--wrap=srun bash -c 'setsid sleep infinity & sleep infinity'"]
    )
    assert submitted.returncode == 0
    running = ["bash", "-c", "until pgrep -x sleep -u alice; do sleep 0.1; done"]
    assert cluster.capture(state, running, user=None, machine="node1").returncode == 0
    assert cluster.down(name("trace"))
    assert not state.folder.exists()
    assert not cluster.down(name("trace"))


def interrupt(name: str, phase: str) -> None:
    """Start a cluster whose `up` is killed at the end of a phase."""
    options = ["--name", name, "--slurm", SMALL, "--nodes", "1"]
    killed = subprocess.run([*COMMAND, "up", *options], env={**os.environ, STOP_AT: phase}, check=False)

    assert killed.returncode == -signal.SIGKILL
    state = cluster.read_state(name)
    assert state is not None
    assert state.phase == phase


def test_up_after_an_interrupted_up(no_trace, name):
    """An `up` that was killed at any phase is cleared away by the next `up`; the last one works."""
    broken = name("broken")
    for phase in PHASES:
        interrupt(broken, phase)
    state = cluster.up(Specification(name=broken, slurm=SMALL, nodes=1))

    assert cluster.capture(state, ["srun", "hostname"]).stdout == "node1\n"
    assert cluster.down(broken)


@pytest.mark.parametrize(
    ("phase", "left"),
    [
        pytest.param("supervised", {"cgroups", "records"}, marks=pytest.mark.full),  # its first process ends by itself
        ("connected", {"processes", "namespaces", "cgroups", "records"}),
    ],
)
def test_down_after_an_interrupted_up(no_trace, now, name, phase, left):
    """`down` clears away what a killed `up` had made."""
    before = now()
    interrupt(name("halfway"), phase)
    during = now()

    assert left <= {kind for kind in before if during[kind] - before[kind]}
    assert cluster.down(name("halfway"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_signal_undoes_an_up(no_trace, name, number):
    """Ctrl-C during `up` leaves nothing, and neither does a SIGTERM, which a CI system sends at a timeout."""
    cluster.down(name("ended"))  # of an earlier, broken run
    process = subprocess.Popen([*COMMAND, "up", "--name", name("ended"), "--slurm", SMALL, "--nodes", "2"])
    record = folder_of(name("ended")) / "state.json"
    deadline = time.monotonic() + PATIENCE
    while not (record.exists() and '"space"' in record.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)

    assert process.wait() == {signal.SIGINT: 1, signal.SIGTERM: 143}[number]
    assert not record.exists()


def test_two_ups_of_one_name(no_trace, name):
    """Of two at the same moment, one boots; the other says so in one line and leaves the cluster as it is."""
    both = name("both")
    line = [*COMMAND, "up", "--name", both, "--slurm", SMALL, "--nodes", "1"]
    started = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate() for process in started]
    (loser,) = [index for index, process in enumerate(started) if process.returncode]

    assert [process.returncode for process in started].count(0) == 1
    assert said[loser] == (
        "",
        f"srunbook cluster: another command is starting or stopping cluster {both!r}: wait until it has ended\n",
    )
    assert cluster.capture(cluster.running_state(both), ["srun", "hostname"]).stdout == "node1\n"
    assert cluster.down(both)


@pytest.mark.parametrize("kill", draw(5, 6.0, "test"), ids=lambda kill: f"{kill.number.name}-{kill.then}")
def test_an_up_that_is_killed_at_any_instant(now, name, kill):
    """Whenever a signal ends `up`, the next command of that name clears all of it away."""
    outcome = end(name("killed"), kill, ["--slurm", SMALL, "--nodes", "1"])

    assert (outcome.problem, outcome.left) == ("", {})


def test_two_clusters_run_at_once(no_trace, name):
    """Two clusters with the same node names do not see each other's jobs."""
    one = cluster.up(Specification(name=name("one"), slurm=SMALL, nodes=1))
    two = cluster.up(Specification(name=name("two"), slurm=SMALL, nodes=2))
    counted = [cluster.capture(state, ["sinfo", "-h", "-o", "%D", "-p", "batch"]).stdout for state in (one, two)]
    jobs = [cluster.capture(state, ["srun", "bash", "-c", "echo $SLURM_JOB_ID"]).stdout for state in (one, two)]

    assert counted == ["1\n", "2\n"]
    assert jobs == ["1\n", "1\n"]
    assert cluster.down(name("one"))
    assert cluster.capture(two, ["srun", "-N2", "hostname"]).returncode == 0
    assert cluster.down(name("two"))


def test_up_looks_at_the_daemons(no_trace, name, until):
    """Where daemons are dead and only their machines live, `up` names them and boots again."""
    specification = Specification(name=name("daemons"), slurm=SMALL, nodes=1)
    said: list[str] = []
    state = cluster.up(specification)
    cluster.up(specification, say=said.append)
    for machine, daemon in (("ctl", "slurmctld"), ("ctl", "mariadbd"), ("node1", "slurmd"), ("login", "munged")):
        killed = cluster.capture(state, ["pkill", "-KILL", "-x", daemon], user=None, machine=machine)
        assert killed.returncode == 0, killed.stderr
    until(lambda: len(dead_daemons(state)) == 4)
    state = cluster.up(specification, say=said.append)

    assert said[0] == f"cluster '{name('daemons')}' is up already"
    assert said[1].startswith("no longer running: mariadbd on ctl, slurmctld on ctl, munged on login, slurmd on node1;")
    assert cluster.capture(state, ["srun", "hostname"]).stdout == "node1\n"
    assert cluster.down(name("daemons"))


def test_a_dead_supervisor_takes_all_with_it(no_trace, name):
    """When the one process on record is killed from outside, `down` still clears the rest, and `up` works."""
    state = cluster.up(Specification(name=name("orphan"), slurm=SMALL, nodes=1))
    assert state.supervisor is not None
    os.kill(state.supervisor[0], signal.SIGKILL)

    deadline = time.monotonic() + PATIENCE
    while state.alive and time.monotonic() < deadline:
        time.sleep(0.02)

    with pytest.raises(cluster.ClusterError, match="is up"):
        cluster.running_state(name("orphan"))
    assert cluster.down(name("orphan"))


def test_a_record_that_names_a_foreign_process_ends_none(no_trace, name):
    """A machine is only what lies in the cluster's namespaces, and `down` needs no record to find these."""
    state = cluster.up(Specification(name=name("record"), slurm=SMALL, nodes=1))
    with subprocess.Popen(["sleep", "infinity"]) as foreign:
        own, state.machines["node1"] = state.machines["node1"], foreign.pid
        with pytest.raises(cluster.ClusterError, match="node1 is dead"):
            cluster.capture(state, ["hostname"], user=None, machine="node1")
        faults.kill_node(state, "node1")
        assert foreign.poll() is None
        foreign.kill()
    state.machines["node1"] = own
    assert cluster.capture(state, ["hostname"], user=None, machine="node1").stdout == "node1\n"
    record = state.folder / "state.json"
    record.write_text(record.read_text()[:200])

    with pytest.raises(cluster.ClusterError, match=f"{record} cannot be used: not JSON"):
        cluster.up(state.specification)
    assert cluster.down(name("record"))
    assert not state.folder.exists()
