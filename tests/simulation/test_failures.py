"""Every entry about a failure: the broken program prints its message again, and the mended one runs.

`pytest tests/simulation/test_failures.py -k batch-mismatch --record` records those of one entry.
"""

from __future__ import annotations

import ast
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.failure_lines import telling
from support.programs import expect_abort_at_exit

from recordings import read_recording, recording_path
from recordings.checking import never_printed
from recordings.comparing import Mask
from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"
PROGRAMS = {
    program: ROOT / "docs" / "troubleshooting" / f"{program.parent.name}.md"
    for program in sorted(FAILURES.glob("*/*.py"))
    if not [*program.parent.glob("*.sbatch")]
}
"""The programs that need no Slurm, and the pages of their entries."""

TOO_LATE = r"(RendezvousConnectionError: The|'NoneType' object has no attribute 'is_failed')"
NO_ANSWER = r"(Connection (closed|reset) by peer|Timed out waiting \d+ms for (recv|send) operation)"

MASKS = (
    Mask(r"^\[\d\] ", "[<rank>] ", "which rank comes first is chance, and whose error ends the others"),
    Mask(r"\[rank\d\]:\s*", "", "the rank is masked above"),
    Mask(r"\b[WEF]\d{4} [\d:.]+ +\d+ (\S+?):\d+\]", r"<time> \1]", "time, process and line of source of a message"),
    Mask(r"\[\w\d{4} [\d:.]+ (\S+)\]", r"[<time> \1]", "time of a message"),
    Mask(r"^\S+(result|training_epoch_loop|dataloader).py:\d+: ", "<place>: ", "where a library warns"),
    Mask(r"line \d+ in read_data", "line <n> in read_data", "a rank that waits may be at any line of its loop"),
    Mask(
        rf"\[\S+/gloo/\S+\] (.* )?{NO_ANSWER}.*",
        "<gloo: no answer>",
        "a dead rank's connection is closed, or reset while data are under way; whose time is up first closes it",
    ),
    Mask(f".*{TOO_LATE}.*", "<a late torchrun>", "it asks before or after the process that answers has ended"),
    Mask(
        r".*(No address added out of total|Failed to start RPC server).*",
        "<the port is in use>",
        "JAX says both, or crashes before the second",
    ),
    Mask(r"'localhost_\d+_0'", "'localhost_<pid>_0'", "torchrun names a node after its process"),
    Mask(r"pid:? \d+|PID \d+|Process \d+", "<process>", "a fresh process each time"),
    Mask(r"binary: \S+", "binary: <python>", "machines keep Python in different places"),
    Mask(r"Elapsed: [\d.]+ seconds", "Elapsed: <n> seconds", "times differ from run to run"),
    Mask(r"[\d.]+ (ms|MiB|million)\b", r"<n> \1", "machines and compilers differ"),
    Mask(r"efficiency \d+%", "efficiency <n>%", "it is a ratio of two times"),
    Mask(r"gai error: .*", "gai error", "a machine without a server for names says so in other words"),
    Mask(r"interfaces: .*", "interfaces: <names>", "machines have different ones"),
    Mask(r"hands out \d+ to \d+", "hands out <range>", "a setting of the system"),
    Mask(r"create \d+ worker", "create <n> worker", "machines have different numbers of CPUs"),
    Mask(r"peer \[[\d.]+\]:\d+", "peer <address>", "the system chose the port"),
    Mask(r"'\[::\]:\d+'|\(?127\.0\.0\.\d(, |:)\d+\)?", "<address>", "the system chose the port"),
    Mask(r" on 127\.0\.0\.\d$", " on <node>", "torchrun numbers nodes in the order of their arrival"),
    Mask(r"\b(on|from) \S+:\d{5}\b", r"\1 <address>", "the port follows from the job id, which is fresh for each run"),
    Mask(r"Shutdown::\d+::|\.cc\] \[\d+\]", "<id>", "a fresh number for each run of the coordinator"),
    Mask(r"logs/train/\d+", "logs/train/<id>", "a fresh number for each job"),
    Mask(r"</torch_\w+>", "</torch_<id>>", "a fresh name each time"),
    Mask(r"\b0x[0-9a-f]+", "<address>", "a fresh address each time"),
    Mask(r"(Error dispatching computation: )+", "<again>", "once for each computation that waits for the first"),
)


@pytest.mark.parametrize(
    ("program", "page"), PROGRAMS.items(), ids=[f"{program.parent.name}/{program.name}" for program in PROGRAMS]
)
def test_program_prints_what_was_recorded(
    program: Path, page: Path, reader: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    for name in ("OMP_NUM_THREADS", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):  # torchrun and JAX tell
        monkeypatch.delenv(name, raising=False)
    text = program.read_text(encoding="utf-8")
    of_torch = re.search("torch|lightning", text) is not None
    if of_torch and "faulthandler" not in text:  # which would show the frames of support/preloaded.py
        monkeypatch.setattr(sys, "executable", str(request.getfixturevalue("forked_python")))
    (command,) = reader.commands(program)
    run = reader.run(program, command)
    expect_abort_at_exit(bool(run.exit_code), run.text)
    path = recording_path(program)
    if of_torch and run.exit_code == 128 + signal.SIGABRT and path.exists():  # gloo sometimes aborts a rank that ends
        run = replace(run, exit_code=read_recording(path).exit_code)
    tells, masks = telling(program, page.stem)

    reader.compare(program, run, tells if any(map(tells, run.output)) else bool, [*MASKS, *masks])


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


def test_bfloat16_ends_with_a_finite_loss() -> None:
    """The mended program trains: its loss falls, where the broken one has inf from the first step."""
    output = read_recording(recording_path(FAILURES / "float16-inf" / "fixed.py")).output
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in output if line.startswith("step")]

    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 3


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
