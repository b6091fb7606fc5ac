"""What becomes of checkpoints: damage, a full disk, another number of ranks, a loss that is no number. Rows 10-13, 15.

Row 9, a kill at each point of a save, is tests/unit/test_checkpoint_kill.py.
"""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from srunbook.cluster import faults


@pytest.fixture
def copy(interrupted):
    """Copies the checkpoints of the interrupted job; returns the copy, and what a job is to be told of it."""

    def make(name: str):
        trial = interrupted[0]
        target = trial.folder / name
        shutil.copytree(trial.checkpoints, target)
        for path in [target, *target.rglob("*")]:
            shutil.chown(path, 20001, 20001)
        return target, {"folder": trial.inside, "arguments": [f"--checkpoint-dir={name}"]}

    return make


def test_damage_is_passed_over(healed, copy, submit, undisturbed, outcomes):
    """Row 10: of three checkpoints, one with a flipped byte and one without its tensors, the whole one is restored."""
    target, there = copy("damaged")
    flipped = next((target / "step-0000000009").glob("*.safetensors"))
    content = bytearray(flipped.read_bytes())
    content[-5] ^= 1
    flipped.write_bytes(content)
    next((target / "step-0000000006").glob("*.safetensors")).unlink()
    trial = submit("", **there)
    job = trial.await_end(60)
    outcomes(
        10,
        "a flipped byte, a missing file",
        "falls back to the one before, says so",
        lost_steps=10 - trial.resumed()[0],
    )

    assert job.state == "COMPLETED"
    assert trial.resumed() == [3]
    assert "step 9 is damaged and is passed over" in trial.file("err")
    assert "step 6 is damaged and is passed over" in trial.file("err")
    assert trial.parameters() == undisturbed(2).parameters()


@pytest.mark.parametrize("nodes", [1, 3])
def test_another_number_of_ranks(healed, copy, submit, undisturbed, interrupted, outcomes, nodes):
    """Row 13: a job of two ranks goes on with one or three, each image once, to the same loss within 1e-5."""
    _, there = copy(f"on-{nodes}")
    trial = submit("", nodes=nodes, batches=True, **there)
    job = trial.await_end(90)

    assert job.state == "COMPLETED"
    assert trial.resumed() == [9]

    seen = Counter()
    for part, first, last in ((interrupted[0], 1, 9), (trial, 1, 5)):
        for event in part.events("batch"):
            if first <= event["step"] <= last:
                seen.update(event["images"])
    whole = Counter(image for event in undisturbed(2).events("batch") for image in event["images"])
    difference = abs(trial.loss() / undisturbed(2).loss() - 1)
    outcomes(
        13,
        f"restart of N=2 at N={nodes}",
        "each image once, loss within 1e-5",
        lost_steps=1,
        loss_difference=difference,
    )

    assert whole.total() == 14 * 96
    assert seen == whole
    assert difference <= 1e-5


def test_a_full_disk_keeps_the_old_checkpoint(healed, submit, undisturbed, outcomes):
    """Row 11: a save on a full disk fails with a clear message; the checkpoint before is whole, and is gone on from."""
    fault, folder = "wait:0:5:data", "/scratch/full"
    trial = submit(fault, arguments=[f"--checkpoint-dir={folder}"])
    trial.await_fault(fault)
    faults.fill_disk(healed, 4)
    at = trial.go(fault)
    over = trial.await_over(60)
    faults.heal(healed)

    assert trial.await_end(30).state == "FAILED"
    errors = [line for line in trial.file("err").splitlines() if "No space left on device" in line]
    assert len(errors) == 1, trial.file("err")
    assert "error: step 6 was not saved in /scratch/full" in errors[0]
    assert "kept: step 3" in errors[0]

    again = submit("", arguments=[f"--checkpoint-dir={folder}"])
    job = again.await_end(60)
    outcomes(11, "a full disk", "old checkpoint kept, clear error", over_s=over - at, lost_steps=6 - again.resumed()[0])

    assert job.state == "COMPLETED"
    assert again.resumed() == [3]
    assert again.parameters() == undisturbed(2).parameters()


def test_a_loss_that_is_no_number_is_not_tried_again(healed, submit, outcomes):
    """Row 15: after a NaN all ranks end with the status 78, and the job does not go back into the queue."""
    fault = "nan:0:5:update"
    trial = submit(fault)
    at = trial.await_fault(fault)
    over = trial.await_over(60)
    outcomes(15, "NaN in a gradient", "status 78, not requeued", over_s=over - at)

    assert trial.await_end(30).state == "FAILED"
    assert "exitcode  : 78" in trial.file("err")
    assert "a restart would not help" in trial.file("err")
    assert trial.shown()["Restarts"] == "0"
