"""What nodes and their network can do to a job: fall silent, die."""

from __future__ import annotations

import time

from srunbook import cluster
from srunbook.cluster import faults


def test_a_partition_is_noticed_at_the_timeout(healed, submit, outcomes):
    """When nothing arrives any more between two nodes, both ranks raise at the timeout, and not before."""
    before, fault, timeout = "mark:0:4:step", "wait:1:5:data", 8
    trial = submit(f"{before};{fault}", "run_distributed", arguments=[f"--timeout={timeout}"])
    trial.await_fault(fault)
    done = trial.await_fault(before)  # after that rank 0 waits for rank 1
    faults.drop(healed, ["node1", "node2"])
    at = trial.go(fault)
    trial.until(lambda: len(trial.raised()) == 2)
    faults.heal(healed)
    over = trial.await_over()
    raised = [trial.raised()[rank]["time"] - since for rank, since in enumerate((done, at))]
    outcomes(
        "all packets between two nodes dropped",
        f"both ranks raise at the timeout of {timeout} s, not before",
        raised_s=max(raised),
        over_s=over - at,
    )

    assert min(raised) >= timeout
    assert all(f"Timed out waiting {timeout}000ms" in event["message"] for event in trial.raised().values())
    assert trial.await_end().state != "COMPLETED"


def test_slurm_notices_a_dead_node(healed, submit, undisturbed, outcomes, until, await_restarts, request):
    """A job whose node dies is requeued once and ends with the very parameters of an undisturbed run."""
    layouts = {"with the rendezvous, N=2": ("hold:0:8:data", ["node2", "node3"])}
    for size in (2, 3, 4) if request.config.getoption("--full") else (2,):
        layouts[f"without it, N={size}"] = ("hold:1:8:data", [f"node{n + 1}" for n in range(size)])
    expected = {name: undisturbed(len(nodes)).parameters() for name, (_, nodes) in layouts.items()}
    trials = {name: submit(fault, nodes=nodes) for name, (fault, nodes) in layouts.items()}  # node2 is full then
    for name, (fault, _) in layouts.items():
        trials[name].await_fault(fault)
    faults.kill_node(healed, "node2")
    at = time.time()
    until(lambda: cluster.node_states(healed)["node2"].startswith("down"))
    restarted = dict(zip(trials, await_restarts(*trials.values()), strict=True))
    faults.heal(healed)
    again = cluster.capture(healed, ["srun", "-w", "node2", "hostname"])
    for name, trial in trials.items():
        job = trial.await_end()
        lost = 7 - trial.resumed()[0]
        outcomes(
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
