"""Stop signals in one process, and the request to requeue."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from srunbook.checkpoint import EXIT_STOPPED, StopSignal, requeue_job


@pytest.fixture
def stop():
    """Install the handlers, and take them away again."""
    with StopSignal() as stop:
        yield stop


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Make a scontrol that notes its arguments and ends with a given status."""

    def make(status=0, message=""):
        path = tmp_path / "scontrol"
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho "{message}" >&2\nexit {status}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "calls"

    return make


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal(stop, number):
    """Each of the three signals is noted, and said at the next step and at all that follow."""
    before = stop.requested(0)
    os.kill(os.getpid(), number)

    assert (before, stop.requested(1), stop.requested(2)) == (False, True, True)
    assert stop.signal is number


def test_a_second_signal_changes_nothing(stop):
    """The first signal counts, and a second one does not end the program."""
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)

    assert stop.requested(0)
    assert stop.signal is signal.SIGUSR1


def test_every(stop):
    """With every=3, a signal is said at the next step that 3 divides."""
    with StopSignal(every=3) as stop:
        os.kill(os.getpid(), signal.SIGTERM)

        assert [stop.requested(step) for step in (1, 2, 3, 4)] == [False, False, True, True]


def test_handlers_are_put_back():
    """After close() the handlers of before are there again; none of them was called."""
    called = []
    before = signal.signal(signal.SIGUSR1, lambda *arguments: called.append(arguments))
    try:
        handler = signal.getsignal(signal.SIGUSR1)
        with StopSignal():
            os.kill(os.getpid(), signal.SIGUSR1)
            assert signal.getsignal(signal.SIGUSR1) is not handler

        assert signal.getsignal(signal.SIGUSR1) is handler
        assert called == []
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("arguments", "message"), [({"every": 0}, "every=0"), ({"signals": [signal.SIGINT]}, "some of SIGTERM, SIGUSR1")]
)
def test_bad_arguments(arguments, message):
    """Arguments that make no sense are refused."""
    with pytest.raises(ValueError, match=message):
        StopSignal(**arguments)


def test_another_thread():
    """Outside of the main thread, handlers cannot be installed, and this is said."""
    errors = []

    def make():
        try:
            StopSignal()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()

    assert errors == ["StopSignal installs signal handlers, which only the main thread can do"]


@pytest.mark.parametrize(
    ("number", "requeue", "calls"),
    [
        (signal.SIGUSR1, None, ["requeue 17"]),
        (signal.SIGUSR2, None, ["requeue 17"]),
        (signal.SIGTERM, None, []),
        (signal.SIGTERM, True, ["requeue 17"]),
        (signal.SIGUSR1, False, []),
    ],
)
def test_leave(stop, scontrol, monkeypatch, number, requeue, calls):
    """leave() requeues after USR1 and USR2 but not after TERM, unless told, and ends with the documented status."""
    noted = scontrol()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    os.kill(os.getpid(), number)
    assert stop.requested(0)
    with pytest.raises(SystemExit) as end:
        stop.leave(requeue=requeue)

    assert end.value.code == EXIT_STOPPED == 75
    assert (noted.read_text().splitlines() if noted.exists() else []) == calls


def test_requeue_is_refused(scontrol, monkeypatch, capsys):
    """What scontrol says when it refuses goes to standard error."""
    scontrol(1, "Requested operation is presently disabled")
    monkeypatch.setenv("SLURM_JOB_ID", "17")

    assert not requeue_job()
    assert capsys.readouterr().err == ("not requeued: scontrol requeue 17: Requested operation is presently disabled\n")


def test_requeue_without_scontrol(monkeypatch, capsys, tmp_path):
    """Without scontrol, or outside of a job, this is said."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert not requeue_job()
    monkeypatch.delenv("SLURM_JOB_ID")
    assert not requeue_job()

    first, second = capsys.readouterr().err.splitlines()
    assert "scontrol requeue 17: [Errno 2]" in first
    assert "SLURM_JOB_ID is not set" in second


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_during_a_save(tmp_path, number):
    """Signals that arrive in the middle of a save, within write and fsync, leave one whole checkpoint and no other."""
    program = f"""
import os, numpy as np
from srunbook.checkpoint import Checkpoints, StopSignal, _files
def signalling(name):
    real = getattr(os, name)
    def call(*arguments):
        os.kill(os.getpid(), {int(number)})
        return real(*arguments)
    setattr(os, name, call)
for name in ("write", "fsync", "rename"):
    signalling(name)
stop = StopSignal()
checkpoints = Checkpoints({str(tmp_path)!r})
for step in range(1, 100):
    if step == 3:
        checkpoints.save(step, {{"a": np.full(1000, step)}})
    if stop.requested(step):
        checkpoints.save(step, {{"a": np.full(1000, step)}})
        stop.leave(requeue=False)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (EXIT_STOPPED, "")
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000003"]


def test_without_the_handlers(tmp_path):
    """The same signal ends a program that has not made a StopSignal."""
    program = "import os, signal, srunbook.checkpoint; os.kill(os.getpid(), signal.SIGUSR1)"
    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == -signal.SIGUSR1
