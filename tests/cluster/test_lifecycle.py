"""A cluster leaves no trace: after `down`, and after a crash at any point.

`bench/cluster_killed.py` ends `up` by signals at drawn instants. That clusters run beside each other is what all tests
with a cluster of their own show.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.published import cluster_name
from support.traces import adopting_orphans, traces

from srunbook import cluster
from srunbook.cluster import Specification, read_specification
from srunbook.cluster._state import folder_of

COMMAND = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "cluster"]
FILE = Path(__file__).resolve().parents[2] / "examples" / "clusters" / "small.yaml"
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
def no_trace(now: Callable[[], dict[str, set[str]]], until: Callable[..., object]) -> Iterator[None]:
    """Compare what is on the host before and after a test."""
    before = now()

    def left() -> dict[str, set[str]]:
        return {kind: more for kind, after in now().items() if (more := after - before[kind])}

    yield
    with suppress(AssertionError):
        until(lambda: not left())
    assert left() == {}


def test_down_leaves_no_trace(no_trace, now, name, generation):
    """`down` does not wait for jobs, and leaves no process, interface, mount, cgroup or folder."""
    before = now()
    state = cluster.up(read_specification(FILE, {"name": name("trace"), "slurm": generation}))
    during = now()
    grown = {kind for kind in before if during[kind] - before[kind]}

    assert grown == {"processes", "cgroups", "folders"}
    submitted = cluster.capture(
        state, ["sbatch", "-N2", "--partition=gpu", "--wrap=srun bash -c 'setsid sleep infinity & sleep infinity'"]
    )
    assert submitted.returncode == 0
    running = ["bash", "-c", "until pgrep -x sleep -u alice; do sleep 0.1; done"]
    assert cluster.capture(state, running, user=None, machine="node1").returncode == 0
    assert cluster.down(name("trace"))
    assert not state.folder.exists()
    assert not cluster.down(name("trace"))


KILLED = """
import os, signal, sys
from srunbook import cluster
name, slurm, last = sys.argv[1:]
enter = cluster.State.enter

def enter_and_die(state, phase):
    enter(state, phase)
    if phase == last:
        os.kill(os.getpid(), signal.SIGKILL)

cluster.State.enter = enter_and_die
cluster.up(cluster.Specification(name=name, slurm=slurm, nodes=1))
"""


def is_not_up(name: str) -> None:
    """See that `status` says in one line that a cluster is not up."""
    status = subprocess.run([*COMMAND, "status", "--name", name], capture_output=True, text=True, check=False)

    assert (status.returncode, status.stdout) == (1, "")
    assert status.stderr == (
        f"srunbook cluster: no cluster {name!r} is up: start one with `srunbook cluster up --name {name}`\n"
    )


@pytest.mark.parametrize("phase", PHASES)
def test_after_a_killed_up(no_trace, name, generation, phase):
    """After an `up` that was killed at any phase, the next `status`, `up` and `down` work at the first try."""
    broken = name("broken")
    for _ in range(2):  # the second `up` comes as far as the first
        killed = subprocess.run([sys.executable, "-c", KILLED, broken, generation, phase], check=False)
        state = cluster.read_state(broken)

        assert killed.returncode == -signal.SIGKILL
        assert state is not None
        assert state.phase == phase
        is_not_up(broken)
    assert cluster.down(broken)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_signal_undoes_an_up(no_trace, name, generation, until, number):
    """Ctrl-C during `up` leaves nothing, and neither does a SIGTERM, which a CI system sends at a timeout."""
    process = subprocess.Popen([*COMMAND, "up", "--name", name("ended"), "--slurm", generation, "--nodes", "2"])
    record = folder_of(name("ended")) / "state.json"
    until(lambda: record.exists() and '"space"' in record.read_text())
    process.send_signal(number)

    assert process.wait() == {signal.SIGINT: 1, signal.SIGTERM: 143}[number]
    assert not record.exists()


def test_a_signal_ends_the_making_of_a_root(no_trace, tmp_path):
    """What waits for a mirror that never answers ends with `up`, and its tree is gone."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mirror = f"http://127.0.0.1:{silent.getsockname()[1]}/debian"
        environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "no_proxy": "127.0.0.1"}
        process = subprocess.Popen([*COMMAND, "up", "--slurm", "22.05", "--mirror", mirror], env=environ)
        with silent.accept()[0]:
            process.terminate()

            assert process.wait() == 143
    assert [path.name for path in (tmp_path / "srunbook" / "roots").iterdir()] == ["bookworm.log"]


def test_two_ups_of_one_name(no_trace, name, generation):
    """Of two at the same moment, one boots; the other says so in one line and leaves the cluster as it is."""
    both = name("both")
    line = [*COMMAND, "up", "--name", both, "--slurm", generation, "--nodes", "1"]
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


def test_up_starts_what_is_dead(no_trace, name, generation):
    """Without its controller, `status` answers at once and says what is dead; `up` starts that, and jobs run on."""
    dead = name("dead")
    state = cluster.up(Specification(name=dead, slurm=generation, nodes=1))
    asked = cluster.capture(state, ["sbatch", "--parsable", "--wrap=until [ -e go ]; do sleep 0.1; done"])
    saved = "touch now; scontrol update JobId=1 Comment=x; until [ /var/spool/slurmctld/job_state -nt now ]; do :; done"
    for line in ("until [ $(squeue -ho %t) = R ]; do sleep 0.1; done", saved, "scontrol reconfigure"):
        assert cluster.capture(state, ["sh", "-c", line], user="root", machine="ctl").returncode == 0
    for machine, daemon in (("ctl", "slurmctld"), ("ctl", "mariadbd"), ("node1", "munged"), ("node1", "slurmd")):
        kill = f"pkill -9 -x '{daemon}(-wlm)?'; while pgrep -x '{daemon}(-wlm)?'; do :; done"
        cluster.capture(state, ["sh", "-c", kill], user=None, machine=machine)
    said: list[str] = []
    told = cluster.describe(state)
    cluster.up(state.specification, say=said.append)
    cluster.capture(state, ["touch", "go"])
    job = cluster.await_job(state, asked.stdout.strip())

    assert told.dead == {"ctl": ["mariadbd", "slurmctld"], "node1": ["munged", "slurmd"]}
    assert [node.state for node in told.nodes] == ["unknown"]
    assert said[:2] == [
        f"dead on {machine}: {', '.join(told.dead[machine])}; starting what is dead" for machine in told.dead
    ]
    assert cluster.dead_daemons(state) == {}
    assert (job.state, len(job.rows)) == ("COMPLETED", 2)
    assert cluster.down(dead)


def test_after_a_killed_cluster(no_trace, name, generation, until):
    """When all processes of a cluster were killed from outside, `status`, `up` and `down` work at the first try."""
    killed = name("killed")
    for _ in range(2):
        state = cluster.up(Specification(name=killed, slurm=generation, nodes=1))
        assert cluster.capture(state, ["srun", "hostname"]).stdout == "node1\n"
        assert state.supervisor is not None
        os.kill(state.supervisor, signal.SIGKILL)  # the others die with it
        until(lambda state=state: not state.alive)
        is_not_up(killed)
    assert cluster.down(killed)
