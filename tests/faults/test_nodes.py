"""What nodes and their network can do to a job: fall silent, die. Rows 3, 5 and 6."""

from __future__ import annotations

import time

import pytest

from srunbook import cluster
from srunbook.cluster import faults


def test_a_partition_is_noticed_at_the_timeout(healed, submit, outcomes):
    """Row 3: when nothing arrives any more between two nodes, both ranks raise at the timeout, within 1 s."""
    fault, timeout = "wait:1:5:data", 8
    trial = submit(fault, "run_distributed", arguments=[f"--timeout={timeout}"])
    trial.await_fault(fault)
    faults.drop(healed, ["node1", "node2"])
    at = trial.go(fault)
    trial.until(lambda: len(trial.raised()) == 2, 60)
    faults.heal(healed)
    over = trial.await_over(150)
    raised = [event["time"] - at for event in trial.raised().values()]
    outcomes(
        3,
        "all packets between two nodes dropped",
        f"both ranks raise at the timeout of {timeout} s, within 1 s",
        raised_s=max(raised),
        over_s=over - at,
    )

    assert all(abs(seconds - timeout) <= 1 for seconds in raised)
    assert trial.await_end(30).state != "COMPLETED"


def test_a_dead_node_costs_one_restart(healed, submit, undisturbed, outcomes, until, request):
    """Rows 5 and 6: a job whose node dies is requeued once and ends with the very parameters of an undisturbed run."""
    layouts = {"rank 0's": ("hold:0:8:data", ["node2", "node3"]), "2": ("hold:1:8:data", ["node1", "node2"])}
    if request.config.getoption("--full"):
        layouts |= {f"{size}": ("hold:1:8:data", [f"node{n + 1}" for n in range(size)]) for size in (3, 4)}
    expected = {name: undisturbed(len(nodes)).parameters() for name, (_, nodes) in layouts.items()}
    trials = {name: submit(fault, nodes=nodes) for name, (fault, nodes) in layouts.items()}
    for name, (fault, _) in layouts.items():
        trials[name].await_fault(fault)
    faults.kill_node(healed, "node2")
    at = time.time()
    until(lambda: cluster.status(healed.specification.name)["node2"].startswith("down"), 90)
    restarted = {name: trial.await_restart(30) - at for name, trial in trials.items()}
    faults.heal(healed)
    for name, trial in trials.items():
        job = trial.await_end(150)
        lost = 7 - trial.resumed()[0]
        row, size = (5, 2) if name == "rank 0's" else (6, int(name))
        outcomes(
            row if row == 5 else float(f"6.{size}"),
            f"death of the node of rank {0 if row == 5 else 1}, N={size}",
            "one restart, final parameters bit-identical",
            over_s=restarted[name],
            lost_steps=lost,
        )

        assert job.state == "COMPLETED"
        assert trial.shown()["Restarts"] == "1"
        assert "NODE_FAIL" in trial.account()
        assert trial.resumed() == [6]
        assert trial.parameters() == expected[name]


@pytest.mark.parametrize("other", [2])
def test_other_parameters_are_told_apart(undisturbed, submit, other):
    """Row 6, negative control: a run whose checkpoint is of other steps ends with other parameters."""
    trial = submit("", nodes=other, arguments=["--learning-rate=0.051"])

    assert trial.await_end(60).state == "COMPLETED"
    assert trial.parameters() != undisturbed(other).parameters()
