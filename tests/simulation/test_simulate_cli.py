"""The command `srunbook simulate`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from srunbook.cli import main

SRUNBOOK = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')"]


def srunbook(*arguments):
    """Run the command in a process of its own."""
    return subprocess.run([*SRUNBOOK, *arguments], capture_output=True, text=True, check=False)


def test_only_the_product_on_stdout():
    """Standard output carries what the tasks print there and nothing else."""
    done = srunbook("simulate", "--nodes", "2", "--", "sh", "-c", "echo out; echo err >&2")

    assert sorted(done.stdout.splitlines()) == ["[0] out", "[1] out"]
    assert sorted(done.stderr.splitlines()) == ["[0] err", "[1] err"]
    assert done.returncode == 0


def test_no_label():
    """With --no-label the lines are what was printed."""
    done = srunbook("simulate", "-N", "2", "--no-label", "--", "echo", "x")

    assert done.stdout == "x\nx\n"


def test_a_failure_is_explained_on_stderr():
    """A failure names rank, node, status and last lines on standard error, and its status is returned."""
    done = srunbook(
        "simulate", "--nodes", "2", "--", "sh", "-c", "echo why; test $SLURM_PROCID = 0 || exit 3; sleep 600"
    )

    assert done.returncode == 3
    assert "[1] why" in done.stdout.splitlines()  # rank 0 may be killed before it says a word
    assert done.stderr.startswith("srunbook simulate: rank 1 on 127.0.0.2 exited with status 3 after ")
    assert done.stderr.endswith("s; 1 other was killed\nlast lines of rank 1:\n[1] why\n")


def test_all_options(tmp_path):
    """Every option reaches the simulation, and options of the command stay its own."""
    script = 'echo "$* $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_GPUS_ON_NODE $SLURM_TRES_PER_TASK"; exit $SLURM_PROCID'
    options = "--nodes 3 --ntasks-per-node 2(x2),1 -c 2 --gpus-per-node 4 --timeout 600 --slurm 24.11"
    logs = tmp_path / "logs"
    logging = ["--no-kill-on-bad-exit", "--output-dir", str(logs)]

    done = srunbook("simulate", *options.split(), *logging, "sh", "-c", script, "x", "--nodes", "9")

    assert done.returncode == 4
    assert (logs / "rank-4.log").read_text() == "--nodes 9 5 2 4 cpu=2\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--nodes 65 -- true", "srunbook simulate: 65 tasks were asked for"),
        ("--nodes two -- true", "'two' is not a valid integer range"),
        ("--output-dir /dev/null -- true", "cannot write logs into '/dev/null'"),
    ],
)
def test_bad_input(arguments, message):
    """Bad input is explained on standard error alone, and returns 2."""
    result = CliRunner().invoke(main, ["simulate", *arguments.split()], prog_name="srunbook")

    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk():
    """When standard output cannot be written, all tasks are killed, and the error is said without a traceback."""
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [*SRUNBOOK, "simulate", "--", "sh", "-c", "echo x; sleep 600"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.stderr.splitlines()[-1].endswith("all tasks were killed: [Errno 28] No space left on device")
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def test_output_that_the_terminal_cannot_show(monkeypatch):
    """What the encoding of standard output cannot express is replaced."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")

    done = srunbook("simulate", "--", "printf", r"\303\244\n")

    assert done.stdout == "[0] ?\n"


def test_closed_standard_streams(tmp_path):
    """With standard input, output and error closed the tasks still run, and their logs are whole."""
    script = "echo out; echo err >&2; exit 4"
    options = ["--nodes", "2", "--no-kill-on-bad-exit", "--output-dir", str(tmp_path)]
    command = [*SRUNBOOK, "simulate", *options, "--", "sh", "-c", script]

    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=False)

    assert done.returncode == 4
    assert sorted((tmp_path / "rank-1.log").read_text().splitlines()) == ["err", "out"]
