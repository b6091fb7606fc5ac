"""Stop signals in one process, and the request to requeue."""

from __future__ import annotations

import os
import signal
import stat

import pytest

from srunbook.signals import EXIT_STOPPED, SIGNALS, StopSignal, requeue_job


@pytest.fixture
def stop():
    """Install the handlers, and take them away again."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with StopSignal() as stop:
        yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Make a scontrol that notes its arguments and ends with a given status."""

    def make(status=0, message="", first=""):
        path = tmp_path / "scontrol"
        path.write_text(f'#!/bin/sh\n{first}\necho "$@" >> {tmp_path}/calls\necho "{message}" >&2\nexit {status}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        return tmp_path / "calls"

    return make


@pytest.mark.parametrize("number", list(SIGNALS))
def test_a_signal(stop, number):
    """Each of the three signals is noted, and reported from the next step on; a second one changes nothing."""
    before = stop.requested()
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGTERM)

    assert (before, stop.requested(), stop.requested()) == (False, True, True)
    assert stop.signal is number


def test_handlers_are_put_back():
    """After the block the handlers of before are there again."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with StopSignal():
            assert signal.getsignal(signal.SIGUSR1) is not signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("number", "calls"), [(signal.SIGUSR1, ["requeue 17"]), (signal.SIGUSR2, ["requeue 17"]), (signal.SIGTERM, [])]
)
def test_leave(stop, scontrol, number, calls):
    """leave() requeues after USR1 and USR2 but not after TERM, and ends with the documented status.

    Further signals, which reach scontrol as well, end neither.
    """
    noted = scontrol(first=f"kill -USR1 $$ {os.getpid()}; kill -TERM $$ {os.getpid()}")
    os.kill(os.getpid(), number)
    assert stop.requested()
    with pytest.raises(SystemExit) as end:
        stop.leave()

    stop.__exit__(SystemExit, end.value, None)
    os.kill(os.getpid(), signal.SIGTERM)  # srun ends the ranks that are left when the first one has ended
    assert end.value.code == EXIT_STOPPED == 75
    assert (noted.read_text().splitlines() if noted.exists() else []) == calls


def test_a_member_of_an_array_requeues_itself_alone(scontrol, monkeypatch):
    """The last member has the array's number as its own, and that number means all members."""
    noted = scontrol()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "40")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")

    assert requeue_job()
    assert noted.read_text() == "requeue 40_3\n"


def test_requeue_that_fails_says_so(scontrol, monkeypatch, capsys, tmp_path):
    """What scontrol says when it refuses, and that there is none, goes to standard error."""
    scontrol(1, "Requested operation is presently disabled")
    assert not requeue_job()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert not requeue_job()
    monkeypatch.delenv("SLURM_JOB_ID")
    assert not requeue_job()

    refused, missing, outside = capsys.readouterr().err.splitlines()
    assert "requeue 17: Requested operation is presently disabled. Submit the job again" in refused
    assert "requeue 17: [Errno 2]" in missing
    assert "SLURM_JOB_ID is not set" in outside
