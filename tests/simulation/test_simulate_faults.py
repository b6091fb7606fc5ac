"""What goes wrong: right message, right status, and no process left."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from srunbook import simulate
from srunbook.simulate import _processes

SIMULATE = [sys.executable, "-c", "from srunbook.cli import main; main()", "simulate"]
LINUX = sys.platform == "linux"

OFFSPRING = """
import os, subprocess, sys
tag = os.environ["SRUNBOOK_TEST_TAG"]
sleeper = [sys.executable, "-c", "import time; time.sleep(3600)", tag]
subprocess.Popen(sleeper)
if sys.platform == "linux":
    subprocess.Popen(["env", "-i", *sleeper], start_new_session=True)  # escapes a kill of the process group
    if os.fork() == 0:  # a daemon: its parents are gone
        os.setsid()
        if os.fork() == 0:
            os.execv(sleeper[0], sleeper)
        os._exit(0)
    os.wait()
"""
"""What each rank starts: children in its session, in their own, and orphaned."""


def ranks(program, event="pass"):
    """Write a program whose ranks have offspring and sleep, except for what `event` does in rank 1."""
    source = f"{OFFSPRING}\nimport signal, time\nrank = int(os.environ['SLURM_PROCID'])\nprint('ready', flush=True)\n"
    return program(f"{source}if rank == 1:\n    {event}\ntime.sleep(3600)\n")


@pytest.fixture
def started(survivors):
    """Start the command in a process group of its own, and wait until all its ranks are ready."""
    running = []

    def start(command, nodes=2):
        process = subprocess.Popen(
            [*SIMULATE, "--nodes", str(nodes), "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        lines = [process.stdout.readline() for _ in range(nodes)]
        assert sorted(lines) == [f"[{rank}] ready\n" for rank in range(nodes)]
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def gone(survivors, until):
    """Wait until nothing is left: guards take a moment to clean up when the simulation was killed."""
    return lambda: until(lambda: not survivors.find())


def test_survivors_are_seen(survivors, until):
    """The search finds a process that escaped by setsid and has no environment, so the tests below can fail."""
    command = ["env", "-i", sys.executable, "-c", "import time; time.sleep(3600)", survivors.tag]
    with subprocess.Popen(command, start_new_session=True) as escaped:
        until(lambda: escaped.pid in survivors.find())

        escaped.kill()


@pytest.mark.parametrize(
    ("event", "returncode", "number", "ending"),
    [
        ("raise ValueError('boom')", 1, None, "exited with status 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, 9, "was ended by signal 9 (SIGKILL)"),
    ],
)
def test_one_rank_fails(event, returncode, number, ending, program, survivors):
    """When a rank fails, the others are killed, the rank is named with its node, and its status is returned."""
    result = simulate.run(ranks(program, event), nodes=2, ntasks_per_node=2)

    first = result.first_failure
    assert survivors.find() == {}
    assert result.returncode == returncode
    assert (first.rank, first.node, first.returncode, first.signal) == (1, "127.0.0.1", returncode, number)
    assert [rank.killed for rank in result.ranks] == [True, False, True, True]
    assert result.failure.startswith(f"rank 1 on 127.0.0.1 {ending} after ")
    assert "; 3 others were killed\nlast lines of rank 1:\n" in result.failure
    if "boom" in event:
        assert result.failure.endswith("[1] ValueError: boom")


def test_failures_without_killing():
    """Without kill-on-bad-exit all ranks run to their end, and the highest status is returned."""
    result = simulate.run(["sh", "-c", "exit $((SLURM_PROCID * 3))"], nodes=3, kill_on_bad_exit=False)

    assert result.returncode == 6
    assert [rank.returncode for rank in result.ranks] == [0, 3, 6]
    assert not any(rank.killed for rank in result.ranks)


def test_a_signal_goes_before_a_status():
    """A rank ended by a signal decides over a higher exit status, as in srun."""
    script = "test $SLURM_PROCID = 0 && kill -TERM $$; exit 200"

    assert simulate.run(["sh", "-c", script], nodes=2, kill_on_bad_exit=False).returncode == 143


def test_background_processes_end_with_their_task(survivors):
    """What a task leaves running in the background is killed, and keeps nobody waiting."""
    result = simulate.run(["sh", "-c", "sleep 3600 & setsid sleep 3600 & echo done"], nodes=2)

    assert result.output == "[0] done\n[1] done"
    assert result.returncode == 0
    assert survivors.find() == {}


def test_ranks_hang(program, survivors):
    """Ranks that have not finished when time is up are killed and named, and the status is 124."""
    result = simulate.run(ranks(program), nodes=2, timeout=1)

    assert survivors.find() == {}
    assert result.returncode == 124
    assert result.timed_out
    assert [rank.killed for rank in result.ranks] == [True, True]
    assert result.failure.startswith("not finished after 1 s, killed: rank 0, 1")


def test_timeout_while_nobody_reads(program, survivors, until):
    """The time limit holds also while the reader of the output is stuck."""
    command = program("print('x' * 1_000_000)\nimport time; time.sleep(3600)")
    with subprocess.Popen([*SIMULATE, "--timeout", "1", "--", *command], stdout=subprocess.PIPE) as process:
        process.stdout.read(1)
        until(lambda: set(survivors.find()) <= {process.pid})

        process.communicate()

    assert process.returncode == 124


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_simulation_is_ended(number, program, started, gone):
    """Ctrl-C ends everything with 130; when the simulation dies of another signal, everything dies with it."""
    process = started(ranks(program))

    process.send_signal(number)
    process.wait()

    gone()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    message = "srunbook simulate: interrupted; all tasks were killed\n" if number == signal.SIGINT else ""
    assert process.stderr.read() == message


@pytest.mark.skipif(not LINUX, reason="only Linux kills a task whose guard was killed")
def test_a_guard_is_killed(program, started, gone):
    """When the guard of a rank is killed, its rank dies with it, and counts as killed by a signal."""
    process = started(program("import time; print('ready', flush=True); time.sleep(3600)"))

    psutil.Process(process.pid).children()[0].kill()
    process.wait()

    gone()
    assert process.returncode == 137
    assert "was ended by signal 9 (SIGKILL)" in process.stderr.read()


def test_the_reader_goes_away(program, started, gone):
    """When the reader of standard output goes away, everything ends with 141."""
    process = started(program("print('ready', flush=True)\nwhile True: print('x', flush=True)"), nodes=1)

    process.stdout.close()
    process.wait()

    gone()
    assert process.returncode == 141
    assert process.stderr.read() == ""


def test_without_linux(program, gone, monkeypatch):
    """Without Linux's means, children and grandchildren still die: those of an ended rank, others in any session."""
    *python, guard = _processes.GUARD
    code = f"exec(open({guard!r}).read().replace('sys.platform == \"linux\"', 'False'))"
    monkeypatch.setattr(_processes, "GUARD", [*python, "-c", code])
    source = """
        import os, subprocess, sys, time
        subprocess.Popen(["sh", "-c", "sleep 3600 & wait"])
        if os.environ["SLURM_PROCID"] == "1":
            sys.exit(4)
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        time.sleep(3600)
    """

    result = simulate.run(program(source), nodes=2)

    gone()
    assert result.returncode == 4
