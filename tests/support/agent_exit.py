"""Output of torchrun without what its agents say when the first of them has left before the others."""

from __future__ import annotations

import re
from collections.abc import Iterable

LABEL = r"(?P<node>\d+): "
"""What `srun --label` puts before each line: the number of a task, which here is the torchrun of one node."""

SAYS_SO = re.compile(
    LABEL
    + r"W\d{4} \S+ +\d+ torch/distributed/elastic/rendezvous/dynamic_rendezvous\.py:\d+\] The node '\S+' has failed "
    r"to (shutdown the rendezvous|send a keep-alive heartbeat to the rendezvous) '\S+' "
    r"due to an error of type RendezvousConnectionError\.$"
)
"""The agent's own words: it wanted to close the rendezvous, and the agent that keeps it had ended."""

BEGINS = re.compile(LABEL + r"\[W\d{4} \S+ TCPStore\.cpp:\d+\] \[c10d\] (recv|send)\w+ failed on SocketImpl\(")
"""The store's client, just before: nobody answers."""

CONTINUES = re.compile(
    LABEL + r"(Exception raised from (recv|send)\w+ at |frame #\d+: |<omitting python frames>$|\s*$)"
)
"""The stack of C++ below it."""

BARRIER = re.compile(
    LABEL
    + r"E\d{4} \S+ +\d+ torch/distributed/elastic/agent/server/api\.py:\d+\] Error waiting on exit barrier\. Elapsed: "
)
"""The agent's own words where it waited for the others, and the agent that keeps the store ended while it did."""

TRACEBACK = re.compile(
    LABEL
    + r"E\d{4} \S+ +\d+ torch/distributed/elastic/agent/server/api\.py:\d+\] "
    + r"(Traceback \(most recent call last\):$| +\S|torch\.distributed\.DistNetworkError: Failed to recv, got 0 bytes)"
)
"""The traceback below that."""


def without_agent_exit(lines: Iterable[str]) -> list[str]:
    """Leave out what agents print when the agent that keeps the store ends before they have closed the rendezvous.

    After the training, every torchrun waits for all others, and then marks the rendezvous as closed. It is kept by
    the torchrun of the first node, which does not wait for this: whoever is later, with either, finds nobody, says so,
    and ends with status 0. Only whole reports are left out, that is what the agent says and the stack of its store
    before it: a stack without such words stays, and so does everything else. Two threads of an agent may say so, the
    one at the exit barrier and the one that sends heartbeats, and the second stack may come before the first words.
    """
    kept: list[str] = []
    pending: dict[str, list[list[int]]] = {}  # node -> for each stack without words yet, its places in `kept`
    dropped: set[int] = set()
    waiting: set[str] = set()  # nodes in whose traceback we are
    for line in lines:
        said = SAYS_SO.match(line) or BARRIER.match(line)
        if said:
            if stacks := pending.get(said["node"]):
                dropped.update(stacks.pop(0))
            waiting |= {said["node"]} if BARRIER.match(line) else set()
            continue
        if (more := TRACEBACK.match(line)) and more["node"] in waiting:
            continue
        begun, more = BEGINS.match(line), CONTINUES.match(line)
        if begun:
            pending.setdefault(begun["node"], []).append([len(kept)])
        elif more and pending.get(more["node"]):
            pending[more["node"]][-1].append(len(kept))
        kept.append(line)
    return [line for place, line in enumerate(kept) if place not in dropped]
