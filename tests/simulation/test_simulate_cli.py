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


def refused(*arguments):
    """Run the command in this process, for what starts none; it has to refuse. Return its standard error."""
    result = CliRunner().invoke(main, ["simulate", *arguments], prog_name="srunbook")

    assert isinstance(result.exception, SystemExit)
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def test_bad_input_of_a_process():
    """Bad input ends the process with 2, and with the explanation alone on standard error."""
    done = srunbook("simulate", "--nodes", "0", "--", "true")

    assert (done.returncode, done.stdout) == (2, "")
    assert "srunbook simulate: the number of nodes is 0; it is 1 to 64, as in --nodes 2" in done.stderr
    assert "Traceback" not in done.stderr


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
    numbers = ["--nodes", "3", "--ntasks-per-node", "2(x2),1", "-c", "2", "--gpus-per-node", "4", "--timeout", "60"]
    options = [*numbers, "--slurm", "24.11", "--no-kill-on-bad-exit"]
    logs = tmp_path / "logs"

    done = srunbook(
        "simulate",
        *options,
        "--no-kill-on-bad-exit",
        "--output-dir",
        str(logs),
        "sh",
        "-c",
        script,
        "x",
        "--nodes",
        "9",
    )

    assert done.returncode == 4
    assert (logs / "rank-4.log").read_text() == "--nodes 9 5 2 4 cpu=2\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--nodes 0 -- true", "the number of nodes is 0; it is 1 to 64, as in --nodes 2"),
        ("--nodes two -- true", "'two' is no whole number; write one, as in --nodes 2"),
        ("--timeout soon -- true", "'soon' is no number; write one, as in --timeout 60"),
        ("--timeout -1 -- true", "time limit in seconds is -1.0"),
        ("--ntasks-per-node 2(x -- true", "'2(x' is no count"),
        ("--slurm 20.11 -- true", "is '20.11'; it is one of 22.05, 24.11, 26.05, as in --slurm 22.05"),
        ("--nodes \uff12 -- true", "'\uff12' is no whole number; write one, as in --nodes 2"),
        ("--nodes 1_0 -- true", "'1_0' is no whole number"),
        (f"--nodes {'9' * 5000} -- true", "is no whole number"),
        ("--ntasks-per-node ² -- true", "'²' is no count"),
        (f"--ntasks-per-node {'9' * 5000} -- true", "is no count"),
        ("--timeout 1_0 -- true", "'1_0' is no number"),
        ("--timeout \uff12 -- true", "is no number"),
        ("--gpus-per-node 65 -- true", "is 65; it is 0 to 64, as in --gpus-per-node 4"),
        ("-- no-such-program", "command not found: 'no-such-program'"),
        ("--nodes 2", "no command was given"),
        ("--output-dir /dev/null -- true", "cannot write logs into '/dev/null'"),
    ],
)
def test_bad_input(arguments, message):
    """Bad input is explained on standard error and returns 2."""
    assert message in refused(*arguments.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", " 2", "--", "true"], "' 2' is no whole number; write one, as in --nodes 2"),
        (["--timeout", " 2", "--", "true"], "' 2' is no number"),
        (["--output-dir", "", "--", "true"], "the output directory is ''"),
        (["--", ""], "the command is an empty text"),
    ],
)
def test_bad_input_with_spaces(arguments, message, tmp_path, monkeypatch):
    """An empty text, and a number with a space, are explained and return 2."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "rank-7.log"
    log.touch()

    assert message in refused(*arguments)
    assert log.exists()


def test_help_has_an_example_and_the_exit_statuses():
    """--help shows an example and every exit status."""
    done = srunbook("simulate", "--help")

    assert "srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train.py" in done.stdout
    for status in ("128+N", "124", "130", "141"):
        assert f"\n    {status} " in done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk():
    """When standard output cannot be written, all tasks are killed, and the error is said without a traceback."""
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [*SRUNBOOK, "simulate", "--", "sh", "-c", "echo x; sleep 600"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert "all tasks were killed: [Errno 28] No space left on device" in done.stderr
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
    command = [
        *SRUNBOOK,
        "simulate",
        "--nodes",
        "2",
        "--no-kill-on-bad-exit",
        "--output-dir",
        str(tmp_path),
        "--",
        "sh",
        "-c",
        script,
    ]

    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=False)

    assert done.returncode == 4
    assert sorted((tmp_path / "rank-1.log").read_text().splitlines()) == ["err", "out"]
