"""What signals do to a job: before the time limit, at a preemption, twice. Rows 7, 8 and 12."""

from __future__ import annotations

import time

from srunbook.cluster import faults

KILL_WAIT = 30
"""Seconds between SIGTERM and SIGKILL in Slurm's default configuration."""


def test_a_signal_costs_at_most_one_step(healed, submit, undisturbed, outcomes):
    """Row 7: signalled by the test, or before a real time limit, a job is requeued once and loses one step at most."""
    fault = "signal:0:8:data"
    limit = ["--time=2", "--signal=USR1@30"]  # the signal may come 60 s early, not before the fault
    limited = submit(fault, nodes=("node3", "node4"), options=limit)
    trial = submit(fault)
    limited.await_fault(fault)
    trial.await_fault(fault)
    at = time.time()
    trial.signal("USR1")
    for name, row, job, seconds in (("sent by the test", 7, trial, 60), ("of a real time limit", 7.1, limited, 150)):
        if job is limited:
            limited.until(lambda: limited.events("over", fault=fault), seconds)
            at = limited.events("over", fault=fault)[0]["time"]
        restarted = job.await_restart(seconds) - at
        ended = job.await_end(90)
        outcomes(
            row,
            f"USR1, {name}",
            "at most 1 step lost, one requeue",
            over_s=restarted,
            lost_steps=8 - job.resumed()[0],
        )

        assert ended.state == "COMPLETED"
        assert job.resumed() in ([7], [8])
        assert job.shown()["Restarts"] == "1"
        assert job.parameters() == undisturbed(2).parameters()


def test_a_preemption_during_a_save(healed, submit, undisturbed, outcomes):
    """Row 8: a job that is preempted while it writes a checkpoint goes on from the one before."""
    fault = "hold:0:6:save"
    trial = submit(fault, options=["--partition=preempt"])
    trial.await_fault(fault)
    at = time.time()
    faults.preempt(healed, ["node1", "node2"])
    restarted = trial.await_restart(3 * KILL_WAIT) - at
    saved = trial.steps_saved()
    faults.heal(healed)
    job = trial.await_end(90)
    outcomes(
        8,
        "preemption during a save",
        "the checkpoint before is whole",
        over_s=restarted,
        lost_steps=6 - trial.resumed()[0],
    )

    assert saved == [3]
    assert job.state == "COMPLETED"
    assert "PREEMPTED" in trial.account()
    assert trial.resumed() == [3]
    assert trial.parameters() == undisturbed(2).parameters()


def test_two_signals_make_one_checkpoint(healed, submit, undisturbed, outcomes):
    """Row 12: a second SIGTERM during the save that the first one asked for changes nothing."""
    first, second = "signal:0:8:data", "signal:0:8:save"
    trial = submit(f"{first};{second}")
    trial.await_fault(first)
    at = time.time()
    trial.signal("TERM")
    trial.await_fault(second)
    trial.signal("TERM")
    over = trial.await_over(90)
    outcomes(
        12, "SIGTERM twice", "one checkpoint, no deadlock", over_s=over - at, lost_steps=8 - trial.steps_saved()[-1]
    )

    assert trial.steps_saved() == [3, 6, 8]
    assert trial.await_end(30).state == "FAILED"
    assert trial.shown()["Restarts"] == "0"
    again = submit(
        "", folder=trial.inside, arguments=[f"--checkpoint-dir={trial.checkpoints.relative_to(trial.folder)}"]
    )

    assert again.await_end(90).state == "COMPLETED"
    assert again.resumed() == [8]
    assert again.parameters() == undisturbed(2).parameters()
