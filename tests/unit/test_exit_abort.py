"""Which failed jobs PyTorch's abort at exit explains, and which it never may."""

from __future__ import annotations

import pytest
from support.exit_abort import aborted_at_exit

JOB = """\
0: rank 0/2 start host=node1 device=cpu:0
1: rank 1/2 start host=node2 device=cpu:0
0: step 40: loss 1.845802
1: terminate called without an active exception
1: E1124 04:36:01.588000 1369 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -6) \
local_rank: 0 (pid: 1374) of binary: /env/bin/python
1: Traceback (most recent call last):
1:   File "/env/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, \
in wrapper
1:     raise ChildFailedError(
1: torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
1:   exitcode  : -6 (pid: 1374)  (SIGABRT)
1:   error_file: <N/A>
1:   traceback : Signal 6 (SIGABRT) received by PID 1374
srun: error: node2: task 1: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=87.0
0: slurmstepd-node1: error: *** STEP 87.0 ON node1 CANCELLED AT 2026-11-24T04:36:02 ***
0: W1124 04:36:02.742000 2866 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, \
shutting down workers
0: Traceback (most recent call last):
0:     raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
0: torch.distributed.elastic.multiprocessing.api.SignalException: Process 2866 got signal: 15
srun: error: node1: task 0: Exited with exit code 1
"""
"""A job that aborted so, on two busy cores, with one frame of its tracebacks."""

WITHOUT_STORE = """\
1: torch.distributed.DistNetworkError: Broken pipe
1: The above exception was the direct cause of the following exception:
1: torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. \
See inner exception for details.
srun: error: node2: task 1: Terminated
"""
"""What another node says where the rank that aborted took the rendezvous of all with it."""


def test_an_abort_at_exit_is_known() -> None:
    """Its output holds nothing wrong but the abort and what follows from it."""
    assert aborted_at_exit(JOB)
    assert aborted_at_exit(JOB + WITHOUT_STORE)
    assert not aborted_at_exit(WITHOUT_STORE)


@pytest.mark.parametrize(
    "other",
    [
        "1: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        "0: torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:4242",
        "srun: error: node2: task 1: Killed",
        "1: Fatal Python error: Segmentation fault",
        "1: terminate called after throwing an instance of 'c10::Error'",
    ],
)
def test_another_error_is_not_excused(other: str) -> None:
    """One line about another error, anywhere in the output, and the job failed for that."""
    first, *rest = JOB.splitlines()

    assert not aborted_at_exit("\n".join([first, other, *rest]))


@pytest.mark.parametrize("without", ["terminate called", "exitcode"])
def test_both_signs_are_needed(without: str) -> None:
    """Neither the line of C++ nor the signal alone is the abort."""
    assert not aborted_at_exit("\n".join(line for line in JOB.splitlines() if without not in line))


def test_another_signal_is_not_excused() -> None:
    """A rank that ended by SIGSEGV did not abort."""
    assert not aborted_at_exit(JOB.replace("-6", "-11"))


def test_a_good_job_has_no_abort() -> None:
    """An output without errors needs no excuse."""
    assert not aborted_at_exit("\n".join(JOB.splitlines()[:3]))
