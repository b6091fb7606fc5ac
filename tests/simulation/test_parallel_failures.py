"""Entries about models that are spread over ranks: the broken program prints its message again, the mended one runs.

`pytest tests/simulation/test_parallel_failures.py --record` writes the recordings anew.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.failure_cases import Case, check

from recordings import read_recording, recording_path
from recordings.comparing import Mask

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"^\[\d\] (\[rank\d\]:\s*)?", "[<rank>] ", "which of the ranks prints first is chance"),
    Mask(r"\[E\d{4} [\d:.]+ (\S+)\]", r"[<time> \1]", "time of a message"),
)

pytestmark = pytest.mark.usefixtures("quick_start")

BROKEN = [
    Case("ddp-every-rank-zero/broken.py", ("rank 0 of 1 trains on all data",)),
    Case("ddp-mismatched-collectives/broken.py", ("RuntimeError: Detected mismatch between collectives on ranks.",), 1),
    Case("ddp-monitored-barrier/broken.py", ("Rank 1 failed to pass monitoredBarrier in 2000 ms",), 1),
    Case(
        "ddp-parameter-shapes/broken.py",
        (r"params\[0\] in this process with sizes \[4, 8\] appears not to match sizes of the same param in process 0",),
        1,
    ),
    Case("ddp-sync-batchnorm/broken.py", ("ValueError: SyncBatchNorm layers only work with GPU modules",), 1),
    Case(
        "ddp-unused-parameters/broken.py",
        ("RuntimeError: Expected to have finished reduction in the prior", "did not receive grad for rank [01]: 2 3"),
        1,
    ),
    Case("float16-inf/broken.py", ("step [0-2]: loss inf",)),
    Case(
        "parallel-all-gather-memory/broken.py",
        ("in foreach_all_gather", "you tried to allocate 301989888 bytes"),
        1,
    ),
    Case("parallel-gloo-lacks/broken.py", ("RuntimeError: Cannot use ReduceOp.PREMUL_SUM with Gloo",), 1),
    Case("parallel-mesh-world/broken.py", ("RuntimeError: Mesh .* default world size 2, but found 4 ranks!",), 1),
    Case("parallel-microbatches/broken.py", (r"RuntimeError: Mismatch in shape: grad_output\[0\]",), 1),
    Case("parallel-mixed-tensors/broken.py", ("RuntimeError: aten.mul.Tensor got mixed torch.Tensor and DTensor",), 1),
    Case("parallel-other-mesh/broken.py", ("on inputs with different meshes: got DeviceMesh",), 1),
    Case("parallel-stage-shapes/broken.py", ("in _forward_metadata_inference", "mat1 and mat2 shapes cannot"), 1),
    Case(
        "parallel-state-dict-one-rank/broken.py",
        ("in get_model_state_dict", "Timed out waiting 3000ms for (recv|send) operation"),
        1,
    ),
    Case("parallel-unequal-parts/broken.py", (r"op\.preamble\.length <= op\.nbytes\. 48 vs 32",), 128 + signal.SIGABRT),
    Case("parallel-view-inplace/broken.py", ("Output 0 of RegisterPostBackwardFunction is a view",), 1),
    Case("parallel-wrapping-order/broken.py", ("TypeError: Invariant encountered: value was None when",), 1),
]

SLOW = ("ddp-monitored-barrier/broken.py", "parallel-state-dict-one-rank/broken.py")
"""Programs that wait for a time-out."""

FIXED = [
    Case("ddp-every-rank-zero/fixed.py", ("rank [01] of 2",)),
    Case("ddp-mismatched-collectives/fixed.py", ("rank [01]: the sum is 2.0",)),
    Case("ddp-monitored-barrier/fixed.py", ("rank [01]: all ranks are here",)),
    Case("ddp-parameter-shapes/fixed.py", ("rank [01]: 4 classes",)),
    Case("ddp-sync-batchnorm/fixed.py", ("rank [01]: BatchNorm1d",)),
    Case("ddp-unused-parameters/fixed.py", ("rank [01]: step [01] is done",)),
    Case("float16-inf/fixed.py", (r"step [0-2]: loss \d\.\d+e",)),
    Case("parallel-all-gather-memory/fixed.py", (r"rank [01]: output of \(1, 3072\)",)),
    Case("parallel-gloo-lacks/fixed.py", ("rank [01]: gradient 1.3333",)),
    Case("parallel-mesh-world/fixed.py", (r"rank [01]: \(1, 2\)",)),
    Case("parallel-microbatches/fixed.py", ("rank [01]: one step is done",)),
    Case("parallel-mixed-tensors/fixed.py", (r"rank [01]: \[\[1.0, 0.0, 1.0, 0.0\]\]",)),
    Case("parallel-other-mesh/fixed.py", ("rank [01]: the same weights: True",)),
    Case("parallel-stage-shapes/fixed.py", ("rank 0: layers 0 to 1", "rank 1: layers 2 to 3")),
    Case("parallel-state-dict-one-rank/fixed.py", (r"saved: .*'weight': \(8, 8\)",)),
    Case("parallel-unequal-parts/fixed.py", ("rank [01]: 6 characters",)),
    Case("parallel-view-inplace/fixed.py", (r"rank [01]: gradient of \(8, 8\)",)),
    Case("parallel-wrapping-order/fixed.py", ("rank [01]: .*DTensor",)),
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
    check(FAILURES / case.program, replace(case, or_status=128 + signal.SIGABRT), reader, MASKS)


def test_bfloat16_ends_with_a_finite_loss() -> None:
    """The mended program trains: its loss falls, where the broken one has inf from the first step."""
    output = read_recording(recording_path(FAILURES / "float16-inf" / "fixed.py")).output
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in output if line.startswith("step")]

    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 3
