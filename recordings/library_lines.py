"""Lines of an output that a library prints and the program does not: they come, mix or stay away by chance."""

from __future__ import annotations

import re
from collections.abc import Iterable

LABEL = r"\s*(\d+: ?|\[\d+\] ?)?\s*"
"""What `srun --label` and the simulation put before each line."""

LINES = (
    (
        r"[IWE]\d{4} \S+ +\d+ torch/distributed/elastic/",
        "the agents of torchrun end in any order, and a later one finds nobody to take leave of",
    ),
    (
        r"\[[IWE]\d{4} \S+ (socket|TCPStore|ProcessGroup\w*)\.cpp:\d+\] ",
        "on a busy machine torch connects once more, or the other side of a connection ends first",
    ),
    (
        r"(Exception raised from \w+ at |frame #\d+: |<omitting python frames>$)",
        "the stack of C++ below such a line, which also names folders of the machine",
    ),
    (r"(@ +0x|\*\*\*)", "the stack of XLA, printed by a process whose peers have ended"),
    (r"RPC: /xla\.coordination", "the last call of a process of JAX to a coordinator that has ended"),
    (r"(\[rank\d+\]: +)?[~^]+[~^ ]*$", "the marks below a line of a traceback, which each Python draws differently"),
    (r"$", "an empty line, which belongs to a stack"),
)
"""How such a line begins, behind its label, and why it may be missing in one of two good runs."""

_ANY = re.compile(LABEL + "(?:" + "|".join(pattern for pattern, _ in LINES) + ")")


def is_library_line(line: str) -> bool:
    """Whether a library printed a line, and not the program.

    >>> is_library_line("1: frame #26: __libc_start_main + 0x85 (0x7f2b0a045305 in libc.so.6)")
    True
    >>> is_library_line("1: epoch 1: loss 0.17")
    False
    """
    return _ANY.match(line) is not None


def program_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines of the program."""
    return [line for line in lines if not is_library_line(line)]


GREETING = re.compile(
    r"((\[Gloo\] Rank ?|\d* ?is connected to ?|\d* ?peer ranks\. ?|Expected number of connected peer ranks is : ?)\d*)+"
)
"""What gloo writes when a device has met the others, in whole or in pieces."""


def without_greetings(lines: Iterable[str]) -> list[str]:
    """Lines without gloo's greetings.

    Gloo writes a greeting piece by piece, and each device greets in a thread of its own. So greetings mix with each
    other and with the lines of the program, and leave lines with nothing but a number, or empty.
    """
    lines = list(lines)
    if not any(GREETING.search(line) for line in lines):
        return lines
    told = (GREETING.sub("", line) for line in lines)
    return [line for line in told if not re.fullmatch(r"(\[\d+\]|\d+:)?[\d ]*", line)]


SRUN = r"^(?:\d+: )?"
"""What `srun --label` puts before each line."""

ABORT = re.compile(SRUN + r"terminate called without an active exception$")
"""What C++ says, in a line of its own."""

SIGNAL = re.compile(r"exitcode\s*: -6 ")
"""What torchrun says of the rank: it ended by SIGABRT."""

FOLLOWS = re.compile(
    SRUN
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
