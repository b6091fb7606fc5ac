"""Each fault does what it says, seen from inside a job, and is healed."""

from __future__ import annotations

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


def test_drain_and_heal(healed, as_user, until):
    """A job that needs all nodes waits while one is drained, and runs when it is given back."""
    faults.drain(healed, "node4")
    job = as_user("sbatch", "--parsable", "-N4", "--output=/dev/null", "--wrap=true").strip()
    reason = ["squeue", "--noheader", f"--jobs={job}", "--format=%T %r"]
    until(lambda: "DRAIN" in as_user(*reason).upper() or "ReqNodeNotAvail" in as_user(*reason))
    faults.heal(healed)

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
    """A job in the low-priority partition goes back into the queue when another wants its nodes."""
    options = ["--partition=preempt", "--requeue", "-N1", "-w", "node1", "--output=/dev/null"]
    job = as_user("sbatch", "--parsable", *options, "--wrap=sleep infinity").strip()
    state = ["squeue", "-h", "-j", job, "-o", "%t"]
    until(lambda: as_user(*state).strip() == "R")
    faults.preempt(healed, ["node1"])
    until(lambda: as_user(*state).strip() == "PD")
    rows = ["sacct", "--duplicates", "--noheader", "-X", f"--jobs={job}", "--format=State"]
    until(lambda: "PREEMPTED" in as_user(*rows))
