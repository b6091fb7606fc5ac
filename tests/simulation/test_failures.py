"""Every entry about a JAX failure: the broken program prints its message again, and the mended one runs.

`pytest tests/simulation/test_failures.py --record` writes the recordings anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.failure_cases import Case, check

from recordings import read_recording, recording_path
from recordings.comparing import Mask

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"[EF]\d{4} [\d:.]+ +\d+ (\S+?):\d+\]", r"<time> \1]", "time, thread and line of XLA's source of a message"),
    Mask(r"Shutdown::\d+::", "Shutdown::<id>::", "a fresh number for each barrier"),
    Mask(r"\b(on|from) \S+:\d{5}\b", r"\1 <address>", "the port follows from the job id, which is fresh for each run"),
    Mask(r"'\[::\]:\d+'", "'[::]:<port>'", "the system chose the port"),
    Mask(r"\.cc\] \[\d+\]", ".cc] [<id>]", "a fresh number for each run of the coordinator"),
    Mask(r"[\d.]+ MiB", "<n> MiB", "the compiler lays out memory by the processor it compiles for"),
    Mask(r"[\d.]+ ms", "<t> ms", "times differ from run to run"),
    Mask(r"efficiency \d+%", "efficiency <n>%", "it is a ratio of two times"),
    Mask(r"[\d.]+ million", "<n> million", "the compiler counts operations after its own rewriting"),
)

BROKEN = [
    Case("jax-compilation-cache/broken.py", ("Error reading persistent compilation cache entry for", "^4.0")),
    Case("jax-deleted-array/broken.py", (r"RuntimeError: Array has been deleted with shape=float32\[4\]",), 1),
    Case("jax-does-not-scale/measure.py", (r"rows on each device", r"a step alone .* ms, with the others .* ms")),
    Case(
        "jax-incompatible-devices/broken.py", ("ValueError: Received incompatible devices for jitted computation.",), 1
    ),
    Case("jax-initialize-deadline/broken.py", ("DEADLINE_EXCEEDED", r"RPC: \S+/RegisterTask"), 134),
    Case("jax-initialize-too-late/broken.py", ("1 device", "RuntimeError: .* must be called before any JAX calls"), 1),
    Case("jax-mesh-devices/broken.py", (r"ValueError: Number of devices 2 must be >= the product of mesh_shape",), 1),
    Case("jax-missing-devices/broken.py", ("visible devices: 0$", "this node has 2 GPUs")),
    Case("jax-no-cluster-detected/broken.py", ("ValueError: coordinator_address should be defined.",), 1),
    Case("jax-non-addressable-array/broken.py", ("RuntimeError: Fetching value for `jax.Array`",), 1),
    Case("jax-out-of-memory/broken.py", ("RESOURCE_EXHAUSTED: Out of memory allocating 1125899906842624 bytes",), 1),
    Case("jax-port-in-use/broken.py", ("Failed to add port to server: No address added out of total 1",), 139, 1),
    Case(
        "jax-proxy-variables/broken.py",
        (r"JAX detected proxy variable\(s\)", "DEADLINE_EXCEEDED", r"RPC: \S+/RegisterTask"),
        134,
    ),
    Case(
        "jax-rank-exception-hangs/broken.py",
        (r"^\[1\] FileNotFoundError", r"^\[0\] # of tasks that reached the barrier: 1/2", r"^\[0\] The first task at"),
        134,
    ),
    Case("jax-world-of-one/broken.py", ("process 0 of 1, 1 device in all", "writing checkpoint.npz")),
]

SLOW = [
    Case(
        "jax-peer-lost/broken.py",
        (r"The following tasks are unhealthy \(stopped sending heartbeats\):", r"RPC: \S+/PollForError", r"^\[0\] 1$"),
        137,
    ),
    Case("jax-deleted-array/fixed.py", ("change: 4.0",)),
    Case("jax-incompatible-devices/fixed.py", ("process [01]: 16.0",)),
    Case("jax-mesh-devices/fixed.py", ("process [01]: {'data': 1, 'model': 2}",)),
    Case("jax-peer-lost/fixed.py", ("process [01] of 2",)),
    Case("jax-port-in-use/fixed.py", ("process [01] of 2",)),
]
"""For --full: process 0 waits ten seconds for a heartbeat, and mended programs."""

FIXED = [
    Case("jax-compilation-cache/fixed.py", ("^4.0",)),
    Case("jax-initialize-deadline/fixed.py", ("process [01] of 2",)),
    Case("jax-initialize-too-late/fixed.py", ("2 devices", "process [01] of 2")),
    Case("jax-missing-devices/fixed.py", ("visible devices: 0,1$", "this node has 2 GPUs")),
    Case("jax-no-cluster-detected/fixed.py", ("process [01] of 2",)),
    Case("jax-non-addressable-array/fixed.py", ("here: ", "sum: 1.0", r"all: \[0.0, 1.0\]")),
    Case("jax-out-of-memory/fixed.py", (r"gradient \(256, 4096\)",)),
    Case("jax-proxy-variables/fixed.py", ("process [01] of 2",)),
    Case("jax-rank-exception-hangs/fixed.py", (r"^\[1\] FileNotFoundError",), 1),
    Case("jax-world-of-one/fixed.py", ("process [0-3] of 4, 4 devices in all", "checkpoint")),
]


@pytest.mark.parametrize(
    "case",
    [*BROKEN, *FIXED, *(pytest.param(case, marks=pytest.mark.full) for case in SLOW)],
    ids=lambda case: case.program,
)
def test_program_prints_what_was_recorded(case: Case, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):  # a site's own would be named as well
        monkeypatch.delenv(name, raising=False)
    check(FAILURES / case.program, case, reader, MASKS)


def test_every_program_has_a_test() -> None:
    """Each program in examples/failures/ is a case of a file like this one, or a job script starts it."""
    cases = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*failures.py"))
    programs = [path for path in FAILURES.glob("*/*.py") if not [*path.parent.glob("*.sbatch")]]

    assert len(programs) > 100
    assert [path for path in programs if f'"{path.parent.name}/{path.name}"' not in cases] == []


def test_recordings_name_no_folder_of_a_machine() -> None:
    """A recording holds no path from the root of a file system but those that its program names."""
    for path in FAILURES.glob("jax-*/*.recording.json"):
        for line in read_recording(path).output:
            assert not re.search(r'File "/', line), f"{path.name}: {line}"


def test_few_rows_per_device_leave_the_same_to_sum() -> None:
    """What the devices have to sum does not depend on the rows of each, and the work does."""
    output = read_recording(recording_path(FAILURES / "jax-does-not-scale" / "measure.py")).output
    found = re.findall(r"(\d+) rows on each device: ([\d.]+) million operations, ([\d.]+) MB", "\n".join(output))
    (few, little_work, sent_for_few), (many, much_work, sent_for_many) = found

    assert sent_for_few == sent_for_many
    assert float(much_work) / float(little_work) == pytest.approx(int(many) / int(few), rel=0.1)


BATCH_SHELL = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
"""What a batch script has of a task's environment: JAX also wants SLURM_STEP_NODELIST, and waits for srun to set it."""


def test_a_batch_shell_is_no_cluster_to_jax(reader: Any) -> None:
    """Started by a batch script without srun, the broken program prints the same message."""
    output, status = reader.alone([sys.executable, FAILURES / "jax-no-cluster-detected" / "broken.py"], **BATCH_SHELL)

    assert status == 1
    assert "ValueError: coordinator_address should be defined." in output


def test_without_srun_the_mended_program_says_so(reader: Any) -> None:
    """Started by a batch script without srun, the mended program asks for srun and ends with status 2."""
    output, status = reader.alone([sys.executable, FAILURES / "jax-no-cluster-detected" / "fixed.py"], **BATCH_SHELL)

    assert status == 2
    assert output.startswith("start me with srun: srun python ")
