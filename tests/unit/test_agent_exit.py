"""What an agent of torchrun says at its end, and what must never be taken for it."""

from __future__ import annotations

import pytest
from support.agent_exit import without_agent_exit

PROGRAM = [
    "0: rank 0/2 start host=node1 device=cpu",
    "1: rank 1/2 start host=node2 device=cpu",
    "0: epoch 0: loss 1.06",
]

STACK = [
    "1: [W1123 05:59:16.934620432 TCPStore.cpp:115] [c10d] recvVector failed on SocketImpl(fd=4, "
    "addr=[80f6:69e8:2a7f::]:48169): Failed to recv, got 0 bytes. Did the remote server shutdown or crash?",
    "1: Exception raised from recvBytes at torch/csrc/distributed/c10d/Utils.hpp:787 (most recent call first):",
    "1: frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f2b07d79b8d in libc10.so)",
    "1: <omitting python frames>",
    "1: frame #26: __libc_start_main + 0x85 (0x7f2b0a045305 in libc.so.6)",
    "1: ",
]

WARNING = (
    "1: W1123 05:59:16.923000 178 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1298] The node "
    "'node2_178_0' has failed to {} '17' due to an error of type RendezvousConnectionError."
)
CLOSING = WARNING.format("shutdown the rendezvous")
OTHER = CLOSING.replace("RendezvousConnectionError", "RendezvousStateError")
FRAMES = ["1: epoch 1: loss 0.17", "1: frame #3: of a video", "1: "]
ELSEWHERE = [line.replace("TCPStore.cpp", "ProcessGroupGloo.cpp") for line in STACK]
HEARTBEAT = WARNING.format("send a keep-alive heartbeat to the rendezvous")

API = "1: E1123 23:10:02.120000 178 torch/distributed/elastic/agent/server/api.py:1008] "
BARRIER = [
    f"{API}Error waiting on exit barrier. Elapsed: 0.03563833236694336 seconds",
    f"{API}Traceback (most recent call last):",
    f'{API}  File "torch/distributed/elastic/agent/server/api.py", line 994, in _exit_barrier',
    f"{API}    store_util.barrier(",
    f"{API}torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
]
REFUSED = [BARRIER[0], BARRIER[1], f"{API}torch.distributed.DistStoreError: another"]


@pytest.mark.parametrize(
    "report",
    [
        [*STACK, CLOSING],
        [CLOSING],
        [*STACK, HEARTBEAT, *STACK, CLOSING],
        [*STACK, *BARRIER, CLOSING],
        [*STACK, *STACK, *BARRIER, HEARTBEAT],
    ],
    ids=["closing", "closing without a stack", "heartbeat", "exit barrier", "two threads at once"],
)
def test_a_report_is_left_out(report):
    """A warning goes with the stack before it, wherever another node's lines come between."""
    between = [*report[:2], "0: epoch 1: loss 0.17", *report[2:]]
    assert without_agent_exit([*PROGRAM, *report]) == PROGRAM
    assert without_agent_exit([*PROGRAM, *between]) == [*PROGRAM, "0: epoch 1: loss 0.17"]


@pytest.mark.parametrize(
    ("lines", "stay"),
    [
        (STACK, STACK),
        ([*STACK, *STACK, CLOSING], STACK),
        ([*STACK, CLOSING.replace("1: ", "0: ", 1)], STACK),
        ([OTHER], [OTHER]),
        (FRAMES, FRAMES),
        (ELSEWHERE, ELSEWHERE),
        (BARRIER[1:], BARRIER[1:]),
        (REFUSED, REFUSED[2:]),
    ],
    ids=[
        "no warning",
        "one warning for two stacks",
        "the warning of another node",
        "another error",
        "lines of the program",
        "not of the store",
        "a traceback alone",
        "another error at the exit barrier",
    ],
)
def test_everything_else_stays(lines, stay):
    """Only a whole report of one node is known; a part of it, or anything like it, is a difference."""
    assert without_agent_exit([*PROGRAM, *lines]) == [*PROGRAM, *stay]


def test_lines_of_the_program_between_stay():
    """What the program prints in the middle of a report stays."""
    assert "1: epoch 1: loss 0.17" in without_agent_exit([*STACK[:3], "1: epoch 1: loss 0.17", *STACK[3:], CLOSING])
