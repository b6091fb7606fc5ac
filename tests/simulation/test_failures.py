"""Every entry about a JAX failure: the broken program prints its message again, and the mended one runs.

`pytest tests/simulation/test_failures.py --record` writes the recordings anew.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jax
import pytest

from srunbook import simulate
from srunbook.formats import Mask, Recording, compare, read_recording, recording_path, write_recording

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"

MASKS = (
    Mask(r"[EF]\d{4} [\d:.]+ +\d+ (\S+?):\d+\]", r"<time> \1]", "time, thread and line of XLA's source of a message"),
    Mask(r"Shutdown::\d+::", "Shutdown::<id>::", "a fresh number for each barrier"),
    Mask(r"\b(on|from) \S+:\d{5}\b", r"\1 <address>", "the port follows from the job id, which is fresh for each run"),
    Mask(r"[\d.]+ MiB", "<n> MiB", "the compiler lays out memory by the processor it compiles for"),
    Mask(r"[\d.]+ ms", "<t> ms", "times differ from run to run"),
    Mask(r"efficiency \d+%", "efficiency <n>%", "it is a ratio of two times"),
    Mask(r"[\d.]+ million", "<n> million", "the compiler counts operations after its own rewriting"),
)

LINES_OF_THE_PLATFORM = re.compile(r"\[Gloo\]|^\[\d\] +@ +0x")
"""Lines that a mended program does not print itself: the transport's greetings, and stack traces of C++."""


@dataclass(frozen=True)
class Case:
    """A program below examples/failures/.

    Args:
        program: Its path there.
        essential: What makes a line part of the comparison; every alternative has to occur.
        status: Exit status of the run: 134 is 128 and SIGABRT.
    """

    program: str
    essential: tuple[str, ...]
    status: int = 0


BROKEN = [
    Case("jax-does-not-scale/measure.py", (r"rows on each device", r"a step alone .* ms, with the others .* ms")),
    Case("jax-initialize-deadline/broken.py", ("DEADLINE_EXCEEDED", r"RPC: \S+/RegisterTask"), 134),
    Case("jax-initialize-too-late/broken.py", ("1 device", "RuntimeError: .* must be called before any JAX calls"), 1),
    Case("jax-missing-devices/broken.py", ("visible devices: 0$", "this node has 2 GPUs")),
    Case("jax-no-cluster-detected/broken.py", ("ValueError: coordinator_address should be defined.",), 1),
    Case("jax-non-addressable-array/broken.py", ("RuntimeError: Fetching value for `jax.Array`",), 1),
    Case("jax-out-of-memory/broken.py", ("RESOURCE_EXHAUSTED: Out of memory allocating 1125899906842624 bytes",), 1),
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

FIXED = [
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


@dataclass(frozen=True)
class Run:
    """What came out of a run."""

    command: str
    lines: tuple[str, ...]
    status: int


def command_of(program: Path) -> str:
    """The first command in a program's docstring: how a reader runs it."""
    docstring = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
    lines = [line.strip() for line in docstring.splitlines()]
    return next(line for line in lines if line.startswith(("srunbook simulate ", "python ")))


def run(program: Path) -> Run:
    """Runs a program as its docstring says, in its own folder."""
    command = command_of(program)
    if command.startswith("python "):
        result = subprocess.run(
            [sys.executable, program.name],
            env={name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "JAX_"))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        output, status = result.stdout, result.returncode
    else:
        options, words = shlex.split(command)[2:], []
        position = options.index("--")
        options, words = options[:position], options[position + 1 :]
        assert words == ["python", program.name]
        parser = argparse.ArgumentParser()
        for name in ("--nodes", "--ntasks-per-node", "--gpus-per-node"):
            parser.add_argument(name, type=int)
        parser.add_argument("--no-kill-on-bad-exit", dest="kill_on_bad_exit", action="store_false", default=None)
        asked = {name: value for name, value in vars(parser.parse_args(options)).items() if value is not None}
        simulated = simulate.run([sys.executable, program.name], timeout=100, **asked)
        output, status = simulated.output, simulated.returncode
    return Run(command, tuple(without_places(line) for line in output.splitlines()), status)


def without_places(line: str) -> str:
    """A line without the folders of this machine."""
    line = re.sub(r'"[^"]*/(site-packages/[^"]*)"', r'"\1"', line)
    return line.replace(f"{FAILURES}/", "")


def essential(case: Case, lines: tuple[str, ...]) -> list[str]:
    """The lines that must be the same at every run, each once: ranks print them in any order."""
    own = {line for line in lines if not LINES_OF_THE_PLATFORM.search(line)}
    return sorted(line for line in own if any(re.search(pattern, line) for pattern in case.essential))


def record(program: Path, run: Run) -> None:
    """Writes a recording beside a program."""
    recording = Recording(
        command=run.command,
        where="simulation" if run.command.startswith("srunbook simulate") else "process",
        date=datetime.now(UTC).date().isoformat(),
        source_sha256=hashlib.sha256(program.read_bytes()).hexdigest(),
        output=run.lines,
        exit_code=run.status,
        versions={"python": sys.version.split()[0], "jax": jax.__version__},
    )
    write_recording(recording_path(program), recording)


@pytest.mark.parametrize("case", [*BROKEN, *FIXED], ids=lambda case: case.program)
def test_program_prints_what_was_recorded(case: Case, recording_wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program about a failure ends, and prints its message, as recorded."""
    program = FAILURES / case.program
    monkeypatch.chdir(program.parent)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):  # a site's own would be named as well
        monkeypatch.delenv(name, raising=False)
    found = run(program)
    text = "\n".join(found.lines)

    assert found.status == case.status, text
    for pattern in case.essential:
        assert re.search(pattern, text, re.MULTILINE), f"no line matches {pattern}:\n{text}"
    if recording_wanted:
        record(program, found)
    recorded = read_recording(recording_path(program))
    difference = compare(essential(case, recorded.output), essential(case, found.lines), MASKS, ordered=False)
    again = f"pytest {Path(__file__).relative_to(ROOT)} -k '{case.program}' --record"
    assert difference is None, f"{difference}\nIf this is as it should be: {again}"


def test_every_program_has_a_test() -> None:
    """Each JAX program in examples/failures/ stands in one of the two lists."""
    programs = {str(path.relative_to(FAILURES)) for path in FAILURES.glob("jax-*/*.py")}

    assert programs == {case.program for case in [*BROKEN, *FIXED]}


def test_recordings_belong_to_their_programs() -> None:
    """A recording was made from the program as it stands now."""
    for path in FAILURES.glob("jax-*/*.py"):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

        assert read_recording(recording_path(path)).source_sha256 == sha256, f"run {path} again with --record"


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


def test_without_srun_the_mended_program_says_so() -> None:
    """Started without srun, the mended program asks for it and ends with status 2."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    batch_shell = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    program = FAILURES / "jax-no-cluster-detected" / "fixed.py"
    result = subprocess.run(
        [sys.executable, program],
        env={**environ, **batch_shell},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 2
    assert result.stderr.startswith("start me with srun:")


def test_a_batch_shell_is_no_cluster_to_jax() -> None:
    """The broken program prints the same message in the environment of a batch script."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    batch_shell = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    program = FAILURES / "jax-no-cluster-detected" / "broken.py"
    result = subprocess.run(
        [sys.executable, program],
        env={**environ, **batch_shell},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 1
    assert "ValueError: coordinator_address should be defined." in result.stderr


def test_comparison_sees_another_message() -> None:
    """A message of other words is a difference, even with everything masked that may vary."""
    case = next(case for case in BROKEN if case.program.startswith("jax-world-of-one"))
    recorded = read_recording(recording_path(FAILURES / case.program)).output
    changed = tuple(line.replace("1 device in all", "1 device in all, truly") for line in recorded)

    assert compare(essential(case, recorded), essential(case, changed), MASKS, ordered=False) is not None
