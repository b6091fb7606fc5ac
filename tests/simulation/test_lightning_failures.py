"""Every entry about a failure of Lightning: the broken program prints its message again, and the mended one runs.

`pytest tests/simulation/test_lightning_failures.py --record` writes the recordings anew.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.failure_cases import Case, check

from recordings import read_recording, recording_path
from recordings.comparing import Mask
from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"^\[\d\] ", "[<rank>] ", "the first that ends with an error ends the others, before or after theirs"),
    Mask(r"\[rank\d\]:\s*", "", "the rank is masked above"),
    Mask(r"^(\[<rank>\] )?\S+result.py:\d+: ", r"\1<place>: ", "where in its source Lightning warns"),
    Mask(r"logs/train/\d+", "logs/train/<id>", "a fresh number for each job"),
    Mask(r"^\S+training_epoch_loop.py:\d+: ", "<place>: ", "where in its source Lightning warns"),
)


pytestmark = pytest.mark.usefixtures("quick_start")

BROKEN = [
    Case("lightning-hpc-checkpoint/broken.py", (r'ValueError: `.fit\(ckpt_path="hpc"\)` is set but no HPC',), 1),
    Case("lightning-ntasks/broken.py", ("RuntimeError: You set `--ntasks=4`",), 1),
    Case("lightning-sync-dist/broken.py", (r"recommended to use `self.log\('val_loss'", r"rank [01]: val_loss [34].0")),
    Case(
        "lightning-unused-parameters/broken.py",
        ("RuntimeError: It looks like your LightningModule has parameters",),
        1,
        134,
    ),
    Case("lightning-devices-mismatch/broken.py", ("the trainer is made", "ValueError: You set `devices=4`"), 1),
    Case("lightning-job-named-bash/broken.py", ("task [01] of 2 is rank 0 of 1",)),
    Case("lightning-sigterm/broken.py", ("Bypassing SIGTERM: 15", "batch [0-4] of 5 is done"), 0, 134),
    Case("tracker-new-run/broken.py", ("steps 0 to 3 .* logs/train/version_0", "steps 2 to 5 .* logs/train/version_1")),
    Case(
        "lightning-replayed-batches/broken.py",
        ("You're resuming from a checkpoint that ended before the epoch ended", r"^trained on samples \[0, 1, 2, 3\]"),
    ),
]

FIXED = [
    Case("lightning-hpc-checkpoint/fixed.py", ("starts at step [02]",)),
    Case("tracker-new-run/fixed.py", (r"steps \d to \d are in logs/train/\d+$",)),
    Case("lightning-ntasks/fixed.py", ("rank [0-3] of 4",)),
    Case("lightning-sync-dist/fixed.py", (r"rank [01]: val_loss 3.5",)),
    Case("lightning-unused-parameters/fixed.py", ("rank [01]: 2 steps",)),
    Case("lightning-devices-mismatch/fixed.py", ("rank [01] of 2 has made 2 steps",)),
    Case("lightning-job-named-bash/fixed.py", ("task [01] of 2 is rank [01] of 2",)),
    Case("lightning-sigterm/fixed.py", ("batch [0-4] of 5 is done", "saved after step 3"), 75),
    Case("lightning-replayed-batches/fixed.py", (r"^trained on samples \[0, 1, 2, 3\]", r"samples \[4, 5, 6, 7\]")),
]


@pytest.mark.parametrize("case", [*BROKEN, *FIXED], ids=lambda case: case.program)
def test_program_prints_what_was_recorded(case: Case, reader: Any) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    check(FAILURES / case.program, case, reader, MASKS)


def test_sigterm_ends_with_status_0_and_saves_nothing() -> None:
    """By itself Lightning leaves a training that SIGTERM stops unfinished and unsaved, and says that all is well."""
    recording = read_recording(recording_path(FAILURES / "lightning-sigterm" / "broken.py"))

    assert recording.exit_code == 0
    assert not [line for line in recording.output if "finished" in line or "batch 3" in line]


ONE_RANK = f"""
import faulthandler, os, signal, sys
sys.path.insert(0, {str(FAILURES / "lightning-sigterm")!r})
import broken

def signal_one_rank(self, _, index):
    if index == 2:
        faulthandler.dump_traceback_later(3, exit=True)
        if self.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)

broken.Model.on_train_batch_start = signal_one_rank
broken.main()
"""


def test_sigterm_to_one_rank_hangs_in_the_handler() -> None:
    """Three seconds after SIGTERM has reached one rank alone, that rank still stands in Lightning's handler."""
    result = simulate.run([sys.executable, "-c", ONE_RANK], ntasks_per_node=2, kill_on_bad_exit=False)

    assert not result.timed_out
    assert result.returncode != 0
    assert "in _sigterm_notifier_fn" in result.ranks[1].output
    assert "batch 2 of 5" not in result.output
