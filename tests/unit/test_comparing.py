"""How the output of a run is compared with its recording: what may vary, and what is never excused."""

from __future__ import annotations

from recordings.comparing import Mask, compare
from recordings.library_lines import aborted_at_exit, is_library_line, program_lines, without_greetings


def test_masks():
    """What a mask names may differ between two runs, and nothing else."""
    masks = [Mask(r"pid \d+", "pid <pid>", "a fresh process each time")]

    assert compare(["pid 1, y=8"], ["pid 22, y=8"], masks) is None
    assert "+pid <pid>, y=7" in compare(["pid 1, y=8"], ["pid 22, y=7"], masks)
    assert compare(["pid 1"], ["pid 22"]) is not None


def test_order():
    """Ranks print in any order, so the order does not count, and a missing line does."""
    assert compare(["a", "b"], ["b", "a"]) is None
    assert compare(["a", "b"], ["b"]) is not None


def test_numbers():
    """Numbers with a fraction agree within 1 %; counts, versions and addresses have to be the same."""
    recorded = ["step 10: loss 0.2948003, rate 1.00e-03", "step 20: loss 0.1"]
    printed = ["step 10: loss 0.2949, rate 1.001e-03", "step 20: loss 0.1005"]

    assert compare(recorded, printed) is None
    assert "+step 20: loss 0.102" in compare(recorded, [printed[0], "step 20: loss 0.102"])
    for one, other in (("step 100", "step 101"), ("torch 2.13.0", "torch 2.13.1"), ("10.77.0.200", "10.77.0.201")):
        assert compare([one], [other]) is not None


def test_lines_of_libraries():
    """What torch and its agents say when one side of a connection ends first, and what Python draws, may be missing.

    What the program prints counts, and so do its tracebacks and what Slurm says.
    """
    library = [
        "1: [W1123 05:59:16.934620432 TCPStore.cpp:115] [c10d] recvVector failed on SocketImpl(fd=4): Broken pipe",
        "1: Exception raised from recvBytes at torch/csrc/distributed/c10d/Utils.hpp:787 (most recent call first):",
        "1: W1123 05:59:16.923000 178 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1298] The node ...",
        "0: [rank0]:            ~~~~~~~~^^^^^^^^^^^",
        "1: ",
    ]
    program = [
        "1: epoch 1: loss 0.17",
        "1: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes",
        "slurmstepd-node1: error: *** STEP 87.0 ON node1 CANCELLED AT 2026-11-24T04:36:02 ***",
    ]

    assert [line for line in library if not is_library_line(line)] == []
    assert program_lines([*library, *program]) == program


STEP = "[0] step 1"
GREETING = "[Gloo] Rank 1 is connected to 3 peer ranks. Expected number of connected peer ranks is"


def test_greetings_of_gloo():
    """However the greetings of several devices mix, the program's own line is found."""
    mixed = ["[0] [Gloo] Rank [Gloo] Rank 10 is connected to  is connected to 3 peer ranks. ", "[0] 3", STEP]
    before_a_line = ["[0] [Gloo] Rank 1 is connected to step 1", "[0] 3 peer ranks. "]

    for printed in ([f"[0] {GREETING} : 3", STEP], mixed, before_a_line):
        assert without_greetings(printed) == [STEP]


JOB = """\
0: step 40: loss 1.845802
1: terminate called without an active exception
1: Traceback (most recent call last):
1: torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
1:   exitcode  : -6 (pid: 1374)  (SIGABRT)
srun: error: node2: task 1: Exited with exit code 1
0: torch.distributed.elastic.multiprocessing.api.SignalException: Process 2866 got signal: 15
"""
"""Lines of a job in which a rank aborted at its exit."""


def test_abort_at_exit():
    """PyTorch's abort at exit, and what follows, is known; one line of another error, or one sign missing, isn't."""
    others = [f"{JOB}1: RuntimeError: mat1 and mat2 shapes cannot be multiplied\n"]
    others += [f"{JOB}srun: error: node2: task 1: Killed\n", JOB.replace("-6", "-11")]
    others += [JOB.replace("1: terminate called without an active exception\n", "")]

    assert aborted_at_exit(JOB)
    assert [job for job in others if aborted_at_exit(job)] == []
