"""What one rank can do to a job: die, stand still, raise, find its port taken."""

from __future__ import annotations

import re
import time

import pytest

from srunbook import cluster
from srunbook.ranklog import parse_rank_lines


@pytest.mark.short_fault
def test_a_killed_rank_ends_the_job(interrupted, outcomes):
    """The survivor of a rank killed in its backward pass raises, and the job is over."""
    trial, at, over = interrupted
    raised = trial.raised()[0]["time"] - at
    outcomes(
        "SIGKILL of a rank in its backward pass",
        "survivors raise, the job is over",
        over_s=over - at,
        raised_s=raised,
        lost_steps=10 - trial.steps_saved()[-1],
    )

    assert re.search("Connection (closed|reset) by peer", trial.raised()[0]["message"])
    assert trial.steps_saved() == [6, 9]


def test_a_survivor_that_does_not_communicate(healed, submit, changed, outcomes, until):
    """With --kill-on-bad-exit a survivor that only reads data is ended too; without it the job goes on."""
    kill, hold = "kill:1:5:backward", "hold:0:5:data"
    endless = submit(f"{kill};{hold}", changed("run_distributed", "--kill-on-bad-exit"), nodes=("node3", "node4"))
    trial = submit(f"{kill};{hold}", "run_distributed")
    at = trial.await_fault(kill)
    took = trial.await_over() - at
    killed = endless.await_fault(kill)
    until(lambda: endless.has_ended() or time.time() > killed + 3 * took)
    outcomes(
        "SIGKILL of a rank while the other reads data",
        "the job is over",
        control=f"without --kill-on-bad-exit the job still ran after {3 * took:.0f} s",
        over_s=took,
    )

    assert endless.state_now() == "RUNNING"


def test_a_stopped_rank_is_noticed_at_the_timeout(healed, submit, outcomes):
    """Survivors of a rank that stands still raise at the timeout of the process group, and not before."""
    before, fault, timeout = "mark:0:5:step", "stop:1:5:step", 8
    trial = submit(f"{before};{fault}", "run_distributed", arguments=[f"--timeout={timeout}"])
    at = trial.await_fault(fault)
    over = trial.await_over()
    raised = trial.raised()[0]["time"] - trial.await_fault(before)  # after that rank 0 waits for rank 1
    outcomes(
        "SIGSTOP of a rank",
        f"survivors raise at the timeout of {timeout} s, not before",
        over_s=over - at,
        raised_s=raised,
    )

    assert raised >= timeout
    assert f"Timed out waiting {timeout}000ms" in trial.raised()[0]["message"]
    assert trial.await_end().state == "FAILED"


def test_an_exception_on_one_rank_is_named(healed, submit, outcomes):
    """The exception of one rank ends all, is named with its rank, and does not put the job into the queue."""
    fault = "raise:1:5:step"
    trial = submit(fault)
    at = trial.await_fault(fault)
    over = trial.await_over()
    job = trial.await_end()
    outcomes(
        "exception on one rank",
        "rank and cause named, no status 0",
        over_s=over - at,
        lost_steps=5 - trial.steps_saved()[-1],
    )
    causes = re.findall(r"rank +: (\d+) \(local_rank: 0\)\n.*exitcode +: (-?\d+)", trial.file("err"))

    assert "RuntimeError: the fault raise:1:5:step" in trial.file("err")
    assert ("1", "1") in causes
    assert job.state == "FAILED"
    assert {row["State"] for row in job.rows if ".0" in row["JobID"]} == {"FAILED"}
    assert min(trial.raised().values(), key=lambda event: event["time"])["rank"] == 1
    assert trial.restarts() == "0"


SERVER = "import signal,socket; s=socket.create_server(('0.0.0.0',{port})); print('ready',flush=True); signal.pause()"
STRANGER = (
    "import socket; s=socket.create_connection(('node1',{port})); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); s.close()"
)


@pytest.fixture
def beside_a_server(healed, submit):
    """Submit a script whose rendezvous port another user's program has, one that never answers."""
    servers = []

    def start(script, faults=""):
        trial = submit(faults, script, options=["--hold"])
        port = 25000 + int(trial.identity) % 7000
        log = healed.folder / "home" / cluster.SECOND_USER / f"server-{port}.log"
        line = f'nohup python3 -c "{SERVER.format(port=port)}" >{log.name} 2>&1 & echo $!'
        run = cluster.capture(healed, ["bash", "-c", line], user=cluster.SECOND_USER, machine="node1")
        servers.append(run.stdout.strip())
        trial.until(lambda: log.exists() and "ready" in log.read_text())
        cluster.capture(healed, ["scontrol", "release", trial.identity])
        at = trial.until(trial.started)
        return trial, port, at

    yield start
    cluster.capture(healed, ["kill", *servers], user=cluster.SECOND_USER, machine="node1")


def test_a_port_in_use_is_avoided(beside_a_server, changed, outcomes, until):
    """A job whose port is taken uses the next, where a stranger does no harm; without that it never begins."""
    fault = "wait:0:5:data"
    endless, _, began = beside_a_server(changed("run_distributed", "/dev/tcp"))
    trial, port, at = beside_a_server("run_distributed", fault)  # its next port is not that of the other job
    reached = trial.await_fault(fault) - at
    line = STRANGER.format(port=port + 1)
    said = cluster.capture(trial.state, ["python3", "-c", line], user=cluster.SECOND_USER, machine="node3")
    went_on = trial.go(fault)
    over = trial.await_over()
    until(lambda: time.time() - began > 3 * reached)
    outcomes(
        "the rendezvous port is in use",
        "the next one is taken",
        control=f"without the search for a free port nothing had begun after {3 * reached:.0f} s",
        reached_s=reached,
        lost_steps=0,
    )
    outcomes("a foreign client at the rendezvous port", "training goes on", over_s=over - went_on, lost_steps=0)

    assert said.returncode == 0, said.stderr
    assert trial.await_end().state == "COMPLETED"
    assert endless.state_now() == "RUNNING"
    assert parse_rank_lines(endless.file("out").splitlines()) == []
