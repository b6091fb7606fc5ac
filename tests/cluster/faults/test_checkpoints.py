"""What becomes of checkpoints: killed saves, damage, a full disk, other ranks, no numbers."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter

import pytest

from srunbook import cluster
from srunbook.cluster import faults


@pytest.fixture
def copy(interrupted):
    """Copy the checkpoints of the interrupted job; return the copy, and what a job is to be told of it."""

    def make(name: str):
        trial = interrupted[0]
        target = trial.folder / name
        shutil.copytree(trial.checkpoints, target)
        for path in [target, *target.rglob("*")]:
            shutil.chown(path, 20001, 20001)
        return target, {"folder": trial.inside, "arguments": [f"--checkpoint-dir={name}"]}

    return make


def test_damage_is_passed_over(healed, copy, submit, undisturbed, outcomes):
    """Where the newest checkpoint has a flipped bit, the one before is restored."""
    target, there = copy("damaged")
    flipped = target / "step_00000009.pt"
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    trial = submit("", **there)
    job = trial.await_end()
    outcomes(
        "a flipped bit in the newest checkpoint",
        "falls back to the one before, says so",
        lost_steps=10 - trial.resumed()[0],
    )

    assert job.state == "COMPLETED"
    assert trial.resumed() == [6]
    assert re.search(r"step_00000009\.pt is damaged, trying the one before", trial.file("out"))
    assert trial.parameters() == undisturbed(2).parameters()


def test_a_killed_save_does_not_count(healed, submit, outcomes):
    """Where a rank is killed in a save, after it has written its data, the checkpoint before is the newest."""
    fault = "kill:0:6:save"
    trial = submit(fault)
    at = trial.await_fault(fault)
    over = trial.await_over()
    outcomes(
        "SIGKILL during a save",
        "the checkpoint before is restored",
        over_s=over - at,
        lost_steps=6 - trial.restored(),
    )

    assert trial.await_end().state == "FAILED"
    assert trial.restored() == 3


def test_another_number_of_ranks(healed, copy, submit, undisturbed, interrupted, outcomes, request):
    """A job of two ranks goes on with three, each image once, to the same loss within 1e-5, not bit for bit."""
    sizes = (1, 3) if request.config.getoption("--full") else (3,)
    places = {nodes: copy(f"on-{nodes}")[1] for nodes in sizes}
    trials = {nodes: submit("", nodes=nodes, batches=True, **there) for nodes, there in places.items()}
    whole = Counter(image for event in undisturbed(2).events("batch") for image in event["images"])

    assert whole.total() == 14 * 96
    for nodes, trial in trials.items():
        assert trial.await_end().state == "COMPLETED"
        assert trial.resumed() == [9]

        seen = Counter()
        for part, first, last in ((interrupted[0], 1, 9), (trial, 1, 5)):
            for event in part.events("batch"):
                if first <= event["step"] <= last:
                    seen.update(event["images"])
        difference = abs(trial.loss() / undisturbed(2).loss() - 1)
        outcomes(
            f"restart of N=2 at N={nodes}",
            "each image once, loss within 1e-5",
            control="the final parameters are not bit-identical",
            lost_steps=1,
            loss_difference=difference,
        )

        assert seen == whole
        assert difference <= 1e-5
        assert trial.parameters() != undisturbed(2).parameters()


@pytest.mark.short_fault
def test_a_full_disk_keeps_the_old_checkpoint(healed, submit, outcomes):
    """A save on a full disk fails with a clear message, and the checkpoint before is whole."""
    fault, folder = "wait:0:5:data", "/scratch/full"
    trial = submit(fault, arguments=[f"--checkpoint-dir={folder}"])
    trial.await_fault(fault)
    faults.fill_disk(healed, 4)
    at = trial.go(fault)
    over = trial.await_over()
    faults.heal(healed)
    command = f"mkdir checkpoints && cp -r {folder} checkpoints/{trial.identity}"
    kept = cluster.capture(healed, ["bash", "-c", command], folder=trial.inside)
    outcomes("a full disk", "old checkpoint kept, clear error", over_s=over - at, lost_steps=6 - trial.restored())

    assert trial.await_end().state == "FAILED"
    errors = [line for line in trial.file("err").splitlines() if "No space left on device" in line]
    assert len(errors) == 1, trial.file("err")
    assert "cannot write /scratch/full/step_00000006.pt" in errors[0]
    assert "earlier files are whole" in errors[0]
    assert kept.returncode == 0, kept.stderr
    assert trial.restored() == 3


def test_what_would_only_go_wrong_again_is_not_tried_again(healed, submit, outcomes):
    """A NaN, and a job that is started again and again and saves nothing, end with the status 78."""
    fault = "nan:0:5:update"
    spoiled = submit(fault)
    looping = submit("hold:0:1:data:always", nodes=["node4"])  # no signal handlers yet: each requeue is quick
    at = spoiled.await_fault(fault)
    over = spoiled.await_over() - at
    for starts in (1, 2, 3):
        looping.until(lambda starts=starts: looping.starts() == starts and looping.started())
        result = cluster.capture(healed, ["scontrol", "requeue", looping.identity])
        assert result.returncode == 0, result.stderr
    at = time.time()
    gave_up = looping.await_over() - at
    outcomes("NaN in a gradient", "never saved; ends with status 78, not requeued", over_s=over, lost_steps=3)
    outcomes("starts that save nothing", "refused at the 4th with status 78", over_s=gave_up)

    for trial, restarts in ((spoiled, "0"), (looping, "3")):
        assert trial.await_end().rows[0]["ExitCode"] == "78:0"
        assert trial.restarts() == restarts
    assert "layers.0.weight is finite: a restart would not help" in spoiled.file("err")
    assert spoiled.restored() == 3
    assert "3 starts in a row saved nothing" in looping.file("err")
