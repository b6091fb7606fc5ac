"""What signals do to a job: before the time limit, at a preemption, twice."""

from __future__ import annotations

import time

import pytest

from srunbook.cluster import faults

GRACE = 600
"""Seconds from the signal to the time limit: more than a save takes, however busy the machine is."""


def test_what_slurm_announces(healed, submit, undisturbed, outcomes, await_restarts):
    """The signal before a time limit costs one step at most, a preemption in a save that save alone."""
    announced, saving = "signal:0:8:data", "hold:0:6:save"
    limited = submit(announced, options=[f"--signal=USR1@{GRACE}"])
    preempted = submit(saving, nodes=("node3", "node4"), options=["--partition=preempt"])

    limited.await_fault(announced)
    limited.limit(GRACE)  # the signal is due at once: not before the job has got there
    preempted.await_fault(saving)
    at = time.time()
    faults.preempt(healed, ["node3", "node4"])
    limited_back, back = await_restarts(limited, preempted, lift=[limited])
    saved = preempted.steps_saved()
    faults.heal(healed)
    signalled = limited.events("over", fault=announced)[0]["time"]
    ended = [trial.await_end().state for trial in (limited, preempted)]
    for trial, fault, accepted, over, step in (
        (
            limited,
            "the signal before a real time limit",
            "at most 1 step lost, one requeue",
            limited_back - signalled,
            8,
        ),
        (preempted, "preemption during a save", "the checkpoint before is whole", back - at, 6),
    ):
        outcomes(fault, accepted, over_s=over, lost_steps=step - trial.resumed()[0])

    assert ended == ["COMPLETED", "COMPLETED"]
    assert limited.resumed() in ([7], [8])
    assert saved == [3]
    assert preempted.resumed() == [3]
    assert "PREEMPTED" in preempted.account()
    for trial in (limited, preempted):
        assert trial.restarts() == "1"
        assert trial.parameters() == undisturbed(2).parameters()


@pytest.mark.short_fault
def test_two_signals_make_one_checkpoint(healed, submit, outcomes):
    """A second SIGTERM during the save that the first one asked for changes nothing."""
    first, second = "signal:0:8:data", "signal:0:8:save"
    trial = submit(f"{first};{second}")
    trial.await_fault(first)
    at = time.time()
    trial.signal("TERM")
    trial.await_fault(second)
    trial.signal("TERM")
    over = trial.await_over()
    outcomes("SIGTERM twice", "one checkpoint, no deadlock", over_s=over - at, lost_steps=8 - trial.steps_saved()[-1])

    assert trial.steps_saved() == [6, 8]
    assert trial.restored() == 8
    assert trial.await_end().rows[0]["ExitCode"] == "75:0"
    assert trial.restarts() == "0"
