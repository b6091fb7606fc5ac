"""Faults do what they say, seen from inside a job, and are healed.

A slow link is seen in test_svgd.py, a drained node in test_gloo_ddp.py, a dead one in test_verify.py.
"""

from __future__ import annotations

from srunbook.cluster import faults

PING = "ping -c1 -W1 $other >/dev/null && echo $other answers || echo $other is silent"


def test_drop_and_heal(healed, as_user):
    """Between two nodes nothing arrives, all else does; after `heal` it does again."""
    command = ["srun", "-w", "node1", "bash", "-c", f"for other in node2 node3 ctl; do {PING}; done"]
    faults.drop(healed, ["node1", "node2"])

    assert as_user(*command).splitlines() == ["node2 is silent", "node3 answers", "ctl answers"]
    faults.heal(healed)
    assert as_user(*command).splitlines() == ["node2 answers", "node3 answers", "ctl answers"]


def test_fill_disk(healed, as_user):
    """On the full disk a job gets `No space left on device`, with the room that was left before that."""
    write = "dd if=/dev/zero of=/scratch/mine bs=1k 2>&1; stat -c %s /scratch/mine; rm /scratch/mine"
    faults.fill_disk(healed, 256)
    said = as_user("srun", "-w", "node3", "bash", "-c", write)

    assert "No space left on device" in said
    assert int(said.split()[-1]) == 256 * 1024
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
