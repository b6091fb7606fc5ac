"""The abort of PyTorch's gloo at exit, which a program cannot rule out before Python 3.14: pytorch/pytorch#190489."""

from __future__ import annotations

import re

from support.library_lines import program_lines

LABEL = r"^(?:\d+: )?"
"""What `srun --label` puts before each line."""

ABORT = re.compile(LABEL + r"terminate called without an active exception$")
"""What C++ says, in a line of its own."""

SIGNAL = re.compile(r"exitcode\s*: -6 ")
"""What torchrun says of the rank: it ended by SIGABRT."""

FOLLOWS = re.compile(
    LABEL
    + r"(\s+(raise|error_file: <N/A>|File \".+\", line \d+, in ).*"
    + r"|torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError:"
    + r"|torch\.distributed\.elastic\.multiprocessing\.api\.SignalException: Process \d+ got signal: 15"
    + r"|torch\.distributed\.DistNetworkError: (Broken pipe|Failed to recv, got 0 bytes\. Connection was .*)"
    + r"|The above exception was the direct cause of the following exception:"
    + r"|torch\.distributed\.elastic\.rendezvous\.api\.RendezvousConnectionError: The connection to the C10d store .*"
    + r"|slurmstepd-\S+ error: \*{3} STEP \S+ ON \S+ CANCELLED AT \S+ \*{3}"
    + r"|srun: error: \S+ tasks? \S+ (Exited with exit code 1|Terminated))$"
)
"""Lines about errors in which torchrun and Slurm say that the others were ended for it, or lost their rendezvous."""

WRONG = re.compile(r"error|exception|fatal", re.IGNORECASE)
"""What makes a line one about an error."""


def aborted_at_exit(output: str) -> bool:
    """Whether a job of torchrun failed because a rank aborted after its last line, and because of nothing else.

    A thread of gloo still held tensors of the last collective when Python was shutting down: the page
    `docs/troubleshooting/torch-abort-at-exit.md` explains it. Any other line about an error makes this False.
    """
    lines = program_lines(line.rstrip() for line in output.splitlines())
    wrong = [line for line in lines if WRONG.search(line) and not FOLLOWS.search(line)]
    return (
        bool(wrong)
        and all(ABORT.match(line) or SIGNAL.search(line) for line in wrong)
        and any(ABORT.match(line) for line in wrong)
        and any(SIGNAL.search(line) for line in lines)
    )
