"""Entries about loading data and checkpoints: the broken program prints its message again, the mended one runs.

`pytest tests/simulation/test_data_failures.py --record` writes the recordings anew.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from support.failure_cases import Case, check

from recordings import read_recording, recording_path
from recordings.comparing import Mask

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"^\[\d\] (\[rank\d\]:\s*)?", "[<rank>] ", "which of the ranks comes first is chance"),
    Mask(r"\(pid \d+\)", "(pid <n>)", "a fresh process each time"),
    Mask(r"</torch_\w+>", "</torch_<id>>", "a fresh name each time"),
    Mask(r"create \d+ worker", "create <n> worker", "machines have different numbers of CPUs"),
    Mask(r"at 0x[0-9a-f]+", "at <address>", "a fresh address each time"),
    Mask(r"^W\d{4} [\d:.]+ \d+ torch/\S+\] (?=RuntimeError)", "", "torch logs it if the signal comes in an import"),
)

pytestmark = pytest.mark.usefixtures("quick_start")

BROKEN = [
    Case("checkpoint-all-ranks-write/broken.py", ("FileNotFoundError: .* 'model.pt.tmp' -> 'model.pt'",), 1),
    Case("checkpoint-disk-full/broken.py", (r"RuntimeError: \[enforce fail at .*\. unexpected pos \d+ vs \d+",), 1),
    Case("checkpoint-gpu-on-cpu/broken.py", ("Attempting to deserialize object on a CUDA device but",), 1),
    Case("checkpoint-module-prefix/broken.py", (r"Unexpected key\(s\) in state_dict: \"module.weight\"",), 1),
    Case("checkpoint-weights-only/broken.py", ("UnpicklingError: Weights only load failed.",), 1),
    Case("data-open-files/broken.py", ("RuntimeError: Too many open files. Communication with the workers",), 1),
    Case("data-same-batch/broken.py", (r"rank [01]: \[\[",)),
    Case("data-same-order/broken.py", (r"rank [01], epoch [01]: \[\[",)),
    Case("data-shared-memory/broken.py", ("unable to allocate shared memory.*: No space left on device",), 1),
    Case(
        "data-spawn-lambda/broken.py", ("PicklingError: Can't pickle <function <lambda> at .*> on __main__ failed",), 1
    ),
    Case("data-spawn-main/broken.py", ("An attempt has been made to start a new process before the",), 1),
    Case("data-too-many-workers/broken.py", (r"UserWarning: This DataLoader will create \d+ worker processes", "^8$")),
    Case(
        "data-worker-killed/broken.py", (r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Killed",), 1
    ),
]

SLOW = ("data-spawn-lambda/broken.py", "data-spawn-main/broken.py")
"""Programs that spawn processes, for which they need the plain interpreter of --full."""

FIXED = [
    Case("checkpoint-all-ranks-write/fixed.py", ("rank [01]: model.pt is there: True",)),
    Case("checkpoint-disk-full/fixed.py", ("model.pt is whole",)),
    Case("checkpoint-gpu-on-cpu/fixed.py", (r"\['bias', 'weight'\]",)),
    Case("checkpoint-module-prefix/fixed.py", ("All keys matched",)),
    Case("checkpoint-weights-only/fixed.py", ("samples",)),
    Case("data-open-files/fixed.py", ("200",)),
    Case("data-same-batch/fixed.py", (r"rank [01]: \[\[",)),
    Case("data-same-order/fixed.py", (r"rank [01], epoch [01]: \[\[",)),
    Case("data-shared-memory/fixed.py", ("^8$",)),
    Case("data-spawn-lambda/fixed.py", (r"\[\[0.0, 0.25\], \[0.5, 0.75\]\]",)),
    Case("data-spawn-main/fixed.py", (r"\[\[0.0, 1.0\], \[2.0, 3.0\]\]",)),
    Case("data-too-many-workers/fixed.py", ("^8$",)),
    Case("data-worker-killed/fixed.py", ("^8$",)),
]


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, marks=pytest.mark.full if case.program in SLOW else ()) for case in BROKEN),
        *(pytest.param(case, marks=pytest.mark.full) for case in FIXED),
    ],
    ids=lambda case: case.program,
)
def test_program_prints_what_was_recorded(case: Case, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    check(FAILURES / case.program, case, reader, MASKS)


def batches(program: str) -> list[list[list[int]]]:
    """Return the batches that the lines of a recording show, those of a rank and an epoch in one list."""
    output = read_recording(recording_path(FAILURES / program)).output
    return [ast.literal_eval(line.split(": ", 1)[1]) for line in output if "rank" in line]


def test_without_a_sampler_all_ranks_have_the_same_batches() -> None:
    """The broken program gives both ranks all samples; the mended one gives each sample to one rank."""
    first, second = batches("data-same-batch/broken.py")
    shares = batches("data-same-batch/fixed.py")

    assert first == second
    assert sorted(sample for share in shares for batch in share for sample in batch) == [*range(8)]


def test_without_set_epoch_the_order_repeats() -> None:
    """The broken program shows each rank one order twice; the mended one shows four."""
    assert len({str(order) for order in batches("data-same-order/broken.py")}) == 2
    assert len({str(order) for order in batches("data-same-order/fixed.py")}) == 4
