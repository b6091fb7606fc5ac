"""Which lines of an output are a library's, as jobs printed them, and which never may be."""

from __future__ import annotations

import pytest
from support.library_lines import is_library_line, program_lines

AGENT = "torch/distributed/elastic/agent/server/api.py:1008]"


@pytest.mark.parametrize(
    "line",
    [
        "1: [W1123 05:59:16.934620432 TCPStore.cpp:115] [c10d] recvVector failed on SocketImpl(fd=4): Broken pipe",
        "0: [W1123 05:59:16.934620432 socket.cpp:755] [c10d] The hostname of the client socket cannot be retrieved",
        "1: Exception raised from recvBytes at torch/csrc/distributed/c10d/Utils.hpp:787 (most recent call first):",
        "[1] <omitting python frames>",
        "1: W1123 05:59:16.923000 178 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1298] The node "
        "'node2_178_0' has failed to shutdown the rendezvous '17' due to an error of type RendezvousConnectionError.",
        f"1: E1123 23:10:02.120000 178 {AGENT} torch.distributed.DistNetworkError: Failed to recv, got 0 bytes",
        "0: [rank0]:            ~~~~~~~~^^^^^^^^^^^",
        "    ^^^^^^",
        "1: ",
    ],
)
def test_lines_of_libraries(line):
    """What torch and its agents say when one side of a connection ends first, and what Python draws."""
    assert is_library_line(line)


def test_everything_else_stays():
    """What the program prints stays, and so do its tracebacks and what Slurm says."""
    lines = [
        "0: rank 0/2 start host=node1 device=cpu",
        "1: epoch 1: loss 0.17",
        "1: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes",
        "1: Traceback (most recent call last):",
        "slurmstepd-node1: error: *** STEP 87.0 ON node1 CANCELLED AT 2026-11-24T04:36:02 ***",
    ]
    assert program_lines(lines) == lines
