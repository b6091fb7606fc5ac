"""Every entry about a failure of torch: the broken program prints its message again, and the mended one runs.

`pytest tests/simulation/test_torchrun_failures.py --record` writes the recordings anew.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from support.failure_cases import Case, check

from recordings import read_recording, recording_path
from recordings.checking import never_printed
from recordings.comparing import Mask

TOO_LATE = r"(RendezvousConnectionError: The|'NoneType' object has no attribute 'is_failed')"
NO_ANSWER = r"(Connection (closed|reset) by peer|Timed out waiting 6000ms for (recv|send) operation)"
ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"\b[WE]\d{4} [\d:.]+ \d+ (torch/\S+)", r"<log> \1", "time and process of a message of torchrun"),
    Mask(r"'localhost_\d+_0'", "'localhost_<pid>_0'", "torchrun names a node after its process"),
    Mask(r"\[\w\d{4} [\d:.]+ (\S+)\]", r"[<time> \1]", "time of a message"),
    Mask(r"(\(127\.0\.0\.1, )\d+\)", r"\1<port>)", "the port follows from the process id"),
    Mask(r"peer \[[\d.]+\]:\d+", "peer <address>", "the system chose the port"),
    Mask(r"line \d+ in read_data", "line <n> in read_data", "a rank that waits may be at any line of its loop"),
    Mask(
        rf"\[\S+/gloo/\S+\] (.* )?{NO_ANSWER}.*",
        "<gloo: no answer>",
        "a dead rank's connection is closed, or reset while data are under way; whose time is up first closes it",
    ),
    Mask(
        f".*{TOO_LATE}.*",
        "<a torchrun that came too late>",
        "it asks before or after the process that answers has ended",
    ),
    Mask(r"Elapsed: [\d.]+ seconds", "Elapsed: <n> seconds", "times differ from run to run"),
    Mask(r"^\[\d\] ", "[<node>] ", "which of the nodes it happens on is chance"),
    Mask(r"gai error: .*", "gai error", "a machine without a server for names says so in other words"),
    Mask(r" on 127\.0\.0\.\d$", " on <node>", "torchrun numbers nodes in the order of their arrival"),
    Mask(r"pid: \d+|Process \d+", "<process>", "a fresh process each time"),
    Mask(r"binary: \S+", "binary: <python>", "machines keep Python in different places"),
    Mask(r"interfaces: .*", "interfaces: <names>", "machines have different ones"),
    Mask(r"hands out \d+ to \d+", "hands out <range>", "a setting of the system"),
)


pytestmark = pytest.mark.usefixtures("quick_start")

BROKEN = [
    Case("torch-agent-late/broken.py", (r"rank [01] of 2 has finished", r"has failed to shutdown the rendezvous")),
    Case("torch-batch-mismatch/broken.py", (r"ValueError: Expected input batch_size \(4\) to match",), 1),
    Case("torch-exit-barrier/broken.py", (r"rank [01] of 2 has finished", "Error waiting on exit barrier"), 137),
    Case("torch-hang-at-start/broken.py", ("rank 0: meets the others",), 142),
    Case("torch-interface-wrong/broken.py", ("Unable to find address for: \\^docker",), 1),
    Case(
        "torch-master-unreachable/broken.py",
        (r"DistNetworkError: The client socket has timed out after", r"DistStoreError: .* 1/2 clients joined"),
        1,
    ),
    Case(
        "torch-master-unresolved/broken.py",
        (r"The IPv6 network addresses of \(node1\.invalid, 29500\) cannot be retrieved", "DistNetworkError: "),
        1,
    ),
    Case("torch-nccl-without-gpu/broken.py", ("RuntimeError: Distributed package doesn't have NCCL built in",), 1),
    Case("torch-one-thread/broken.py", ("Setting OMP_NUM_THREADS", "rank [01] computes with 1 thread")),
    Case("torch-out-of-memory/broken.py", ("you tried to allocate 1125899906842624 bytes",), 1),
    Case("torch-peer-died/broken.py", (r"Connection (closed|reset) by peer", r"rank [01]: step [0-2]"), 137),
    Case("torch-port-in-use/broken.py", ("port: 29500, .* name: EADDRINUSE",), 1),
    Case("torch-rank-env-missing/broken.py", ("ValueError: .* environment variable RANK expected, but not set",), 1),
    Case("torch-rank-killed/broken.py", (r"failed \(exitcode: -9\) local_rank: 1", r"exitcode  : -9 .*SIGKILL"), 1),
    Case("torch-rendezvous-timeout/broken.py", (r"^\[[01]\] torch\.\S+\.RendezvousTimeoutError",), 1),
    Case("torch-several-launchers/broken.py", ("4 processes: training begins", TOO_LATE), 1),
    Case("torch-several-launchers/no_nnodes.py", ("2 processes: training begins", TOO_LATE), 1),
    Case(
        "torch-signal-handled/broken.py",
        ("Received 12 death signal, shutting down workers", r"SignalException: Process \d+ got signal: 12"),
        1,
    ),
    Case("torch-standalone/broken.py", ("rank [01] of 2 on ",)),
    Case(
        "torch-truncated-checkpoint/broken.py",
        ("of a small model: ", "RuntimeError: PytorchStreamReader failed reading zip archive"),
        1,
    ),
    Case(
        "torch-uneven-batches/broken.py",
        ("rank 0 has finished", "rank 0: the sum is 1.5", f"rank0.* {NO_ANSWER}"),
        1,
        128 + signal.SIGABRT,
    ),
]

FIXED = [
    Case("torch-batch-mismatch/fixed.py", ("rank [01]: 3 rows, 3 labels",)),
    Case("torch-hang-at-start/fixed.py", ("rank [01]/2 start", "in read_data", "rank [01]: (meets|all)")),
    Case("torch-interface-wrong/fixed.py", ("interfaces: ", "rank 0 of 1")),
    Case("torch-master-unreachable/fixed.py", ("rank [01] of 2",)),
    Case("torch-master-unresolved/fixed.py", ("rank [01] of 2",)),
    Case("torch-nccl-without-gpu/fixed.py", ("rank 0 of 1, backend gloo",)),
    Case("torch-one-thread/fixed.py", ("rank [01] computes with 2 threads",)),
    Case("torch-out-of-memory/fixed.py", ("the same gradient: True",)),
    Case("torch-port-in-use/fixed.py", ("the system hands out", "rank 0 of 1")),
    Case("torch-rank-env-missing/fixed.py", ("rank [01] of 2",)),
    Case("torch-rendezvous-timeout/fixed.py", ("rank [01] of 2",)),
    Case("torch-several-launchers/fixed.py", ("4 processes on 2 nodes: training begins",)),
    Case("torch-signal-handled/fixed.py", (r"\bsaved$", r"SignalException: Process \d+ got signal: 12"), 1),
    Case("torch-standalone/fixed.py", ("rank [0-3] of 4 on ",)),
    Case("torch-truncated-checkpoint/fixed.py", ("checkpoint_epoch_1.pt is whole",)),
    Case("torch-uneven-batches/fixed.py", ("rank [01] has finished", "rank [01]: the sum is 4.0")),
]

SLOW = [
    Case("torch-hang-at-exit/broken.py", (r"Timeout \(0:00:10\)!", "in train_and_leave"), 1),
    Case("torch-hang-at-exit/fixed.py", ("rank [01]: no hang",)),
]
"""For --full: a hang has to last for ten seconds."""


@pytest.mark.parametrize(
    "case",
    [*BROKEN, *FIXED, *(pytest.param(case, marks=pytest.mark.full) for case in SLOW)],
    ids=lambda case: case.program,
)
def test_program_prints_what_was_recorded(case: Case, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    check(FAILURES / case.program, case, reader, MASKS)


def test_comparison_takes_any_stack_of_the_store() -> None:
    """Which call of the store finds that the other torchrun has left is chance; every other line has to be printed."""
    recorded = read_recording(recording_path(FAILURES / "torch-agent-late" / "broken.py")).output
    began = "[1] [W1123 07:52:15.9 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=4)"
    printed = ["[0] rank 0 of 2 has finished", began, "[1] frame #3: c10d::TCPStore::check()", recorded[-1]]

    assert never_printed(recorded, printed, lambda line: "has finished" in line) is None
    more = [*recorded, "[0] the results are in results.csv"]
    assert never_printed(more, printed, lambda line: "has finished" in line) == (
        f"recorded, but not printed:\n{more[-1]}"
    )
