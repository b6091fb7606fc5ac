"""Each fault does what it says, seen from inside a job, and is healed."""

from __future__ import annotations

import pytest
from support.patience import PATIENCE
from support.published import cluster_name

from srunbook import cluster
from srunbook.cluster import faults

PING = "ping -c1 -W1 $other >/dev/null && echo $other answers || echo $other is silent"


def test_drop_and_heal(healed, as_user):
    """Between two nodes nothing arrives, all else does; after `heal` it does again."""
    command = ["srun", "-w", "node1", "bash", "-c", f"for other in node2 node3 ctl; do {PING}; done"]
    faults.drop(healed, ["node1", "node2"])

    assert as_user(*command).splitlines() == ["node2 is silent", "node3 answers", "ctl answers"]
    faults.heal(healed)
    assert as_user(*command).splitlines() == ["node2 answers", "node3 answers", "ctl answers"]


DATAGRAMS = """
import os, socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "send":
    while True:
        end.sendto(b"x", (sys.argv[2], 7779))
        open("sending", "w").close()
        time.sleep(0.05)
while not os.path.exists("sending"):
    time.sleep(0.05)
end.bind(("0.0.0.0", 7779))
end.settimeout(float(sys.argv[2]))
try:
    end.recv(1)
    print("heard")
except TimeoutError:
    print("nothing")
"""


@pytest.mark.parametrize(("here", "there"), [("node1", "node2"), ("node2", "node1")])
def test_drop_in_both_directions(healed, as_user, here, there):
    """What a node sends does not arrive at the other, whichever of them was named first; after `heal` it does."""
    home = healed.folder / "home" / "alice"
    (home / "datagrams.py").write_text(DATAGRAMS)
    send, hear = f"srun -w {here} python3 datagrams.py send {there}", f"srun -w {there} python3 datagrams.py hear"
    command = f"rm -f sending; {send} & {hear} {{seconds}}; kill $!; wait"
    faults.drop(healed, ["node1", "node2"])

    assert as_user("bash", "-c", command.format(seconds=2)).split() == ["nothing"]
    faults.heal(healed)
    assert as_user("bash", "-c", command.format(seconds=PATIENCE)).split() == ["heard"]


def test_drop_breaks_an_open_connection(healed, as_user, until):
    """A connection that is open when traffic is dropped goes silent: no reset, no end, only a timeout."""
    program = (
        "import os, socket, time\n"
        "def say(*words):  # into the shared home: what goes by way of srun crosses the network, too\n"
        "    with open('talk.log', 'a') as log: print(*words, file=log)\n"
        "if os.environ['SLURM_PROCID'] == '0':\n"
        "    server = socket.create_server(('0.0.0.0', 7777)); peer, _ = server.accept()\n"
        "    while True: peer.sendall(b'x'); time.sleep(0.1)\n"
        "else:\n"
        "    while True:\n"
        "        try: peer = socket.create_connection(('node1', 7777)); break\n"
        "        except OSError: time.sleep(0.1)\n"
        "    peer.recv(1); say('connected'); peer.settimeout(3)\n"
        "    try:\n"
        "        while peer.recv(100): pass\n"
        "        say('closed')\n"
        "    except TimeoutError: say('silence')\n"
        "    except OSError as error: say('error', error)\n"
    )
    home = healed.folder / "home" / "alice"
    (home / "talk.py").write_text(program)
    log = home / "talk.log"
    log.unlink(missing_ok=True)
    job = as_user(
        "sbatch", "--parsable", "-N2", "-w", "node1,node2", "--output=/dev/null", "--wrap=srun python3 talk.py"
    ).strip()
    until(lambda: log.exists() and "connected" in log.read_text())
    faults.drop(healed, ["node1", "node2"])
    until(lambda: len(log.read_text().split()) == 2)
    as_user("scancel", job)

    assert log.read_text().split() == ["connected", "silence"]


SPEED = """
import os, socket, time
amount, times = 2**20, 5
if os.environ["SLURM_PROCID"] == "0":
    server = socket.create_server(("0.0.0.0", 7778))
    for _ in range(times):
        with server.accept()[0] as peer:
            peer.sendall(bytes(amount))
            peer.recv(1)
else:
    took = []
    while len(took) < times:
        start, got = time.monotonic(), 0  # before the first byte is sent, so that no pause makes it look faster
        try:
            peer = socket.create_connection(("node1", 7778))
        except OSError:
            time.sleep(0.05)
            continue
        while got < amount:
            got += len(peer.recv(2**16))
        took.append(time.monotonic() - start)
        peer.close()
    print(round(8 * amount / min(took) / 1e6))
"""
"""Prints the rate of the fastest of five transfers: on a busy machine some are held up."""


def test_link(healed, as_user):
    """A link of 20 Mbit/s never carries more than that between two nodes, and carries more after `heal`."""
    (healed.folder / "home" / "alice" / "speed.py").write_text(SPEED)
    command = ["srun", "-N2", "-w", "node1,node2", "python3", "speed.py"]
    faults.link(healed, "20mbit")
    limited = int(as_user(*command))
    faults.heal(healed)

    assert limited <= 24  # it may send 128 KiB at once
    assert int(as_user(*command)) > 2 * limited


def test_drain_and_resume(healed, as_user, until):
    """A job that needs all nodes waits while one is drained, and runs when it is given back."""
    faults.drain(healed, "node4")
    job = as_user("sbatch", "--parsable", "-N4", "--output=/dev/null", "--wrap=true").strip()
    reason = ["squeue", "--noheader", f"--jobs={job}", "--format=%T %r"]
    until(lambda: "DRAIN" in as_user(*reason).upper() or "ReqNodeNotAvail" in as_user(*reason))
    faults.resume(healed, "node4")

    assert cluster.await_job(healed, job).state == "COMPLETED"


def test_fill_disk(healed, as_user):
    """On the full disk a job gets `No space left on device`, with the room that was left before that."""
    write = [
        "srun",
        "-w",
        "node3",
        "bash",
        "-c",
        "dd if=/dev/zero of=/scratch/mine bs=1k 2>&1; stat -c %s /scratch/mine",
    ]
    faults.fill_disk(healed, 256)
    result = cluster.capture(healed, write)
    as_user("rm", "/scratch/mine")

    assert "No space left on device" in result.stdout
    assert int(result.stdout.split()[-1]) == 256 * 1024
    faults.heal(healed)
    assert int(as_user("srun", "df", "--output=avail", "-k", "/scratch").split()[-1]) > 60_000


def test_slow_node(healed, as_user, until):
    """On a node with 0.05 CPUs a job gets a twentieth of the CPU time that has passed."""
    count = (
        "import time\nwall, cpu = time.monotonic(), time.process_time()\n"
        "while time.monotonic() - wall < 3: pass\n"
        "print((time.process_time() - cpu) / (time.monotonic() - wall))\n"
    )
    faults.slow_node(healed, "node2", 0.05)
    share = float(as_user("srun", "-w", "node2", "python3", "-c", count))
    faults.heal(healed)

    assert share < 0.1
    until(lambda: float(as_user("srun", "-w", "node2", "python3", "-c", count)) > 0.1)  # others may need the CPUs


def test_preempt_requeues(healed, as_user, until):
    """A job in the low-priority partition is requeued when another wants its nodes, and runs again after `heal`."""
    command = 'touch started-$SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ] || sleep infinity'
    as_user("bash", "-c", "rm -f started-*")
    options = ["--partition=preempt", "--requeue", "-N1", "-w", "node1", "--output=/dev/null"]
    job = as_user("sbatch", "--parsable", *options, f"--wrap={command}").strip()
    until(lambda: "started-" in as_user("ls"))
    faults.preempt(healed, ["node1"])
    until(lambda: as_user("squeue", "-h", "-j", job, "-o", "%t").strip() == "PD")
    faults.heal(healed)
    ended = cluster.await_job(healed, job)

    assert ended.state == "COMPLETED"
    assert "started-1" in as_user("ls")
    assert "PREEMPTED" in as_user("sacct", "--duplicates", "--noheader", "-X", f"--jobs={job}", "--format=State")


@pytest.mark.full  # by default faults/test_nodes.py kills a node under a job, and runs on it afterwards
def test_kill_node(healed, as_user, until):
    """A node that loses its power takes its job with it as NODE_FAIL; the job is requeued; `heal` boots the node."""
    log = healed.folder / "home" / "alice" / "dead.log"
    log.unlink(missing_ok=True)
    step = "srun bash -c 'echo up; sleep infinity'"
    command = f'echo attempt ${{SLURM_RESTART_COUNT:-0}}; [ -n "$SLURM_RESTART_COUNT" ] || {step}'
    options = ["--requeue", "-N2", "-w", "node1,node2", "--output=dead.log", "--open-mode=append"]
    job = as_user("sbatch", "--parsable", *options, f"--wrap={command}").strip()
    until(lambda: log.exists() and log.read_text().count("up\n") == 2)  # a step that cannot start ends the job
    faults.kill_node(healed, "node2")
    until(lambda: cluster.status(healed.specification.name)["node2"].startswith("down"))
    faults.heal(healed)
    ended = cluster.await_job(healed, job)

    assert ended.state == "COMPLETED"
    assert log.read_text().split("\n")[-2] == "attempt 1"
    assert "NODE_FAIL" in as_user("sacct", "--duplicates", "--noheader", "-X", f"--jobs={job}", "--format=State%20")
    assert as_user("srun", "-w", "node2", "hostname") == "node2\n"


def test_down_undoes_faults(pytestconfig):
    """A cluster with a dead node and dropped traffic goes down like any other."""
    name = cluster_name(pytestconfig, "faulty")
    state = cluster.up(cluster.Specification(name=name, slurm="22.05", nodes=3))
    faults.drop(state, [])
    faults.kill_node(state, "node3")

    assert cluster.down(name)
    assert cluster.read_state(name) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda state: faults.kill_node(state, "node9"), "node 'node9': the cluster has node1, node2"),
        (lambda state: faults.link(state, "fast"), "a rate is 100kbit to 40gbit"),
        (lambda state: faults.slow_node(state, "node1", 0), "allowed are 0.05 to 64"),
        (lambda state: faults.fill_disk(state, -1), "allowed are 0 to 60000"),
    ],
    ids=["node", "rate", "quota", "room"],
)
def test_bad_faults_are_refused(slurm, call, said):
    """A fault that cannot be is refused before anything is broken."""
    with pytest.raises(cluster.SpecificationError, match=said.replace("(", "[(]")):
        call(slurm)

    assert cluster.running_state(slurm.specification.name).faults == []
