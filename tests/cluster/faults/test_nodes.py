"""What nodes and their network can do to a job: fall silent, die. Rows 3, 5 and 6."""

from __future__ import annotations

import time

from srunbook import cluster
from srunbook.cluster import faults

KILL_WAIT = 30
"""Seconds that Slurm gives the processes on the nodes that are left."""


def test_a_partition_is_noticed_at_the_timeout(healed, submit, outcomes):
    """Row 3: when nothing arrives any more between two nodes, both ranks raise at the timeout, within 1 s."""
    fault, timeout = "wait:1:5:data", 8
    trial = submit(fault, "run_distributed", arguments=[f"--timeout={timeout}"])
    waiting = trial.await_fault(fault)  # and rank 0 waits for rank 1 since then
    faults.drop(healed, ["node1", "node2"])
    at = trial.go(fault)
    trial.until(lambda: len(trial.raised()) == 2, 60)
    faults.heal(healed)
    over = trial.await_over(150)
    raised = [trial.raised()[rank]["time"] - since for rank, since in enumerate((waiting, at))]
    outcomes(
        3,
        "all packets between two nodes dropped",
        f"both ranks raise at the timeout of {timeout} s, within 1 s",
        raised_s=max(raised),
        over_s=over - at,
    )

    assert all(abs(seconds - timeout) <= 1 for seconds in raised)
    assert trial.await_end(30).state != "COMPLETED"


def test_a_dead_node_costs_one_restart(healed, submit, undisturbed, outcomes, until, await_restarts, request):
    """Rows 5 and 6: a job whose node dies is requeued once and ends with the very parameters of an undisturbed run."""
    layouts = {"with the rendezvous, N=2": ("hold:0:8:data", ["node2", "node3"])}
    for size in (2, 3, 4) if request.config.getoption("--full") else (2,):
        layouts[f"without it, N={size}"] = ("hold:1:8:data", [f"node{n + 1}" for n in range(size)])
    trials = {name: submit(fault, nodes=nodes) for name, (fault, nodes) in layouts.items()}
    expected = {name: undisturbed(len(nodes)).parameters() for name, (_, nodes) in layouts.items()}
    for name, (fault, _) in layouts.items():
        trials[name].await_fault(fault)
    faults.kill_node(healed, "node2")
    at = time.time()
    until(lambda: cluster.status(healed.specification.name)["node2"].startswith("down"), 90)
    restarted = dict(zip(trials, await_restarts(*trials.values(), seconds=3 * KILL_WAIT), strict=True))
    faults.heal(healed)
    again = cluster.capture(healed, ["srun", "-w", "node2", "hostname"], timeout=60)
    for name, trial in trials.items():
        job = trial.await_end(240)
        lost = 7 - trial.resumed()[0]
        outcomes(
            5 if name.startswith("with the") else 6 + len(layouts[name][1]) / 100,
            f"death of a node {name}",
            "one restart, final parameters bit-identical",
            over_s=restarted[name] - at,
            lost_steps=lost,
        )

        assert job.state == "COMPLETED"
        assert trial.restarts() == "1"
        assert "NODE_FAIL" in trial.account()
        assert trial.resumed() == [6]
        assert trial.parameters() == expected[name]
    assert again.stdout == "node2\n", again.stderr
