"""What goes wrong: right message, right status, and no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from srunbook import simulate

SIMULATE = [sys.executable, "-c", "from srunbook.cli import main; main()", "simulate"]
LINUX = sys.platform == "linux"
OTHER_SIGNALS = [pytest.param(number, marks=pytest.mark.full) for number in (signal.SIGHUP, signal.SIGQUIT)]
linux_only = pytest.mark.skipif(not LINUX, reason="needs a subreaper, which only Linux has")

OFFSPRING = """
import os, subprocess, sys
tag = os.environ["SRUNBOOK_TEST_TAG"]
sleeper = [sys.executable, "-c", "import time; time.sleep(3600)", tag]
subprocess.Popen(sleeper)
if sys.platform == "linux":
    subprocess.Popen(sleeper, start_new_session=True)  # escapes a kill of the process group
    subprocess.Popen(["env", "-i", *sleeper], start_new_session=True)  # and a search by its environment
    if os.fork() == 0:  # a daemon: its parents are gone
        os.setsid()
        if os.fork() == 0:
            os.execv(sleeper[0], sleeper)
        os._exit(0)
    os.wait()
"""
"""What each rank starts: children in its session, in their own, without an environment, and orphaned."""


def ranks(program, event):
    """Write a program whose ranks have offspring and sleep, except for what `event` does in rank 1."""
    source = f"{OFFSPRING}\nimport signal, time\nrank = int(os.environ['SLURM_PROCID'])\nprint('ready', flush=True)\n"
    return program(f"{source}if rank == 1:\n    {event}\ntime.sleep(3600)\n")


@pytest.fixture
def started(survivors):
    """Start the command, and wait until all its ranks are ready."""
    running = []

    def start(command, nodes=2, options=()):
        process = subprocess.Popen(
            [*SIMULATE, "--nodes", str(nodes), *options, "--", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        lines = [process.stdout.readline() for _ in range(nodes)]
        assert sorted(lines) == [f"[{rank}] ready\n" for rank in range(nodes)]
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def supervisor_of(process):
    """Return the supervisor, which is the only child of the simulation."""
    (child,) = psutil.Process(process.pid).children()
    return child


@pytest.fixture
def gone(survivors, until):
    """Wait until nothing is left: the kernel takes a moment to end what was killed while nobody was left to wait."""
    return lambda: until(lambda: not survivors.find())


@pytest.fixture
def late_clock(tmp_path):
    """Give a file, and a supervisor whose clock stands still until it exists: a busy machine starts programs late."""
    file, supervisor = tmp_path / "clock-runs", tmp_path / "supervisor.py"
    supervisor.write_text(
        f"""
import os, runpy, time
now, begun = time.monotonic, []
def monotonic():
    if not begun and os.path.exists({str(file)!r}):
        begun.append(now())
    return now() - begun[0] if begun else 0.0
time.monotonic = monotonic
runpy.run_path({str(simulate._processes.SUPERVISOR)!r}, run_name="__main__")
"""
    )
    return file, supervisor


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
        pytest.param("sys.exit(7)", 7, None, "exited with status 7", marks=pytest.mark.full),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, 9, "was ended by signal 9 (SIGKILL)"),
        pytest.param("os.abort()", 134, 6, "was ended by signal 6 (SIGABRT)", marks=pytest.mark.full),
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


@linux_only
def test_a_process_that_never_stands_still(program, tmp_path):
    """A daemon that forks a successor every half millisecond, each in a session of its own, is caught too."""
    runner = program(
        """
        import os, time
        print("running", flush=True)
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
            os.utime(__file__)  # a search for it would come too late
            time.sleep(0.0005)
        """,
        "runner.py",
    )
    command = program(
        f"""
        import subprocess, sys
        with subprocess.Popen({runner!r}, start_new_session=True, stdout=subprocess.PIPE) as runner:
            sys.exit(runner.stdout.readline().decode())
        """
    )

    result = simulate.run(command)

    last = (tmp_path / "runner.py").stat().st_mtime_ns
    time.sleep(0.1)
    assert (tmp_path / "runner.py").stat().st_mtime_ns == last
    assert "running" in result.output


def test_failures_without_killing(program):
    """Without kill-on-bad-exit all ranks run to their end, and the highest status is returned."""
    command = program("import os, sys; sys.exit(int(os.environ['SLURM_PROCID']) * 3)")

    result = simulate.run(command, nodes=3, kill_on_bad_exit=False)

    assert result.returncode == 6
    assert [rank.returncode for rank in result.ranks] == [0, 3, 6]
    assert not any(rank.killed for rank in result.ranks)


def test_a_signal_goes_before_a_status(program):
    """A rank ended by a signal decides over a higher exit status, as in srun."""
    command = program(
        "import os, signal, sys\nif os.environ['SLURM_PROCID'] == '0': os.kill(os.getpid(), 15)\nsys.exit(200)"
    )

    result = simulate.run(command, nodes=2, kill_on_bad_exit=False)

    assert result.returncode == 143


def test_one_rank_hangs(program, survivors, late_clock, monkeypatch):
    """When a rank hangs past the time limit, it is killed and named, and the status is 124."""
    clock, supervisor = late_clock
    monkeypatch.setattr(simulate._processes, "SUPERVISOR", supervisor)
    first = clock.with_name("first")
    command = program(
        f"""{OFFSPRING}
import pathlib, time
clock, first = pathlib.Path({str(clock)!r}), pathlib.Path({str(first)!r})
print('ready', flush=True)
if os.environ['SLURM_PROCID'] == '0':
    first.symlink_to(str(os.getpid()))
    sys.exit()
while not first.is_symlink() or os.path.exists('/proc/' + os.readlink(first)):
    time.sleep(0.01)
clock.touch()
time.sleep(3600)
"""
    )

    result = simulate.run(command, nodes=2, timeout=1)

    assert survivors.find() == {}
    assert result.returncode == 124
    assert result.timed_out
    assert [rank.killed for rank in result.ranks] == [False, True]
    assert result.ranks[1].seconds >= 1
    assert result.failure == "not finished after 1 s, killed: rank 1\nlast lines of rank 1:\n[1] ready"


def test_timeout_while_nobody_reads(program, survivors, until, late_clock):
    """The time limit holds also while the reader of the output is stuck."""
    clock, supervisor = late_clock
    command = program("print('x' * 1_000_000)\nimport time; time.sleep(3600)")
    patched = f"from srunbook.simulate import _processes; _processes.SUPERVISOR = {str(supervisor)!r}; {SIMULATE[2]}"
    simulation = [*SIMULATE[:2], patched, *SIMULATE[3:], "--timeout", "1", "--", *command]
    with subprocess.Popen(simulation, stdout=subprocess.PIPE) as process:
        until(lambda: len(survivors.find()) == 3)  # the simulation, its supervisor and the program
        clock.touch()
        until(lambda: set(survivors.find()) == {process.pid})

        process.communicate()

    assert process.returncode == 124


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, *OTHER_SIGNALS])
def test_the_simulation_is_ended(number, program, started, gone):
    """Ctrl-C ends everything with 130; when the simulation dies of another signal, everything dies with it."""
    process = started(ranks(program, "pass"))

    process.send_signal(number)
    process.wait()

    gone()
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    message = "srunbook simulate: interrupted; all tasks were killed\n" if number == signal.SIGINT else ""
    assert process.stderr.read() == message


def test_an_impatient_user(program, started, gone):
    """Ctrl-C again and again, until the end, is one Ctrl-C."""
    process = started(ranks(program, "pass"))

    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)

    gone()
    assert process.returncode == 130
    assert process.stderr.read() == "srunbook simulate: interrupted; all tasks were killed\n"


def test_the_whole_group_is_killed(program, gone):
    """A SIGKILL to the simulation's process group, as some CI systems send it, leaves nothing."""
    command = [*SIMULATE, "--nodes", "2", "--", *ranks(program, "pass")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)

    gone()


def test_the_supervisor_is_killed(program, started, gone):
    """When the supervisor is killed, the simulation finds and kills what carries its mark, and says so."""
    source = OFFSPRING.replace('["env", "-i", *sleeper]', "sleeper") + "\nimport time\nprint('ready', flush=True)\n"
    process = started(program(source + "time.sleep(3600)"))

    supervisor_of(process).kill()
    process.wait()

    gone()
    assert process.returncode == 1
    assert "the supervisor of the simulation was killed" in process.stderr.read()


@linux_only
def test_the_supervisor_is_killed_above_daemons(program, started, gone):
    """When the supervisor is killed, the command itself inherits and kills daemons without an environment."""
    source = OFFSPRING.replace("os.execv(sleeper[0], sleeper)", "os.execve(sleeper[0], sleeper, {})")
    process = started(program(f"{source}\nimport time\nprint('ready', flush=True)\ntime.sleep(3600)\n"))

    supervisor_of(process).kill()
    process.wait()

    gone()
    assert process.returncode == 1
    assert process.stderr.read().endswith(
        "the supervisor of the simulation was killed; what it ran was killed after it, as far as it was found\n"
    )


@linux_only
def test_what_is_not_of_the_simulation_stays(program, survivors):
    """A process that the shell started before it became the command is no part of the simulation."""
    command = [*SIMULATE, "--", *program("import os; os.kill(os.getppid(), 9); import time; time.sleep(3600)")]
    script = 'sleep 3600 & echo $! && exec "$@" 2>&1'
    done = subprocess.Popen(["sh", "-c", script, "sh", *command], stdout=subprocess.PIPE, text=True)
    other = psutil.Process(int(done.stdout.readline()))
    assert done.wait() == 1

    assert other.is_running()
    assert set(survivors.find()) == {other.pid}

    other.kill()
    done.communicate()


@linux_only
def test_a_caller_of_the_library_stays_as_it_was(survivors):
    """The library does not make its caller inherit orphans."""
    code = (
        "import ctypes; from srunbook import simulate; simulate.run(['true']); flag = ctypes.c_int(7)\n"
        "ctypes.CDLL(None).prctl(37, ctypes.byref(flag), 0, 0, 0); print(flag.value)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "0\n"


@linux_only
def test_supervisor_and_simulation_are_killed(program, started, gone):
    """When both are killed at once, the tasks die too."""
    process = started(program("import time; print('ready', flush=True); time.sleep(3600)"))
    supervisor = supervisor_of(process)
    supervisor.suspend()

    process.kill()
    supervisor.kill()

    gone()


def test_the_reader_goes_away(program, started, gone):
    """When the reader of standard output goes away, everything ends with 141."""
    process = started(
        program("import time; print('ready', flush=True)\nwhile True: print('x', flush=True); time.sleep(0.01)"),
        nodes=1,
    )

    process.stdout.close()
    process.wait()

    gone()
    assert process.returncode == 141
    assert process.stderr.read() == ""


def test_an_interrupt_in_the_library(program, survivors, monkeypatch):
    """An exception while output is read reaches the caller of run(), and nothing is left."""

    class Interrupted:
        encoding = "utf-8"

        def write(self, text):
            raise KeyboardInterrupt

        def flush(self):
            pass

    monkeypatch.setattr("sys.stdout", Interrupted())

    with pytest.raises(KeyboardInterrupt):
        simulate.run(ranks(program, "pass"), nodes=2, echo=True)

    assert survivors.find() == {}


def test_without_linux(program, gone, monkeypatch, tmp_path):
    """Without Linux's means, children and grandchildren still die: those of an ended rank, others in any session."""
    wrapper = tmp_path / "supervisor.py"
    original = simulate._processes.SUPERVISOR
    wrapper.write_text(
        f"import runpy, sys\nsys.platform = 'darwin'\nrunpy.run_path({str(original)!r}, run_name='__main__')"
    )
    monkeypatch.setattr(simulate._processes, "SUPERVISOR", wrapper)
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
