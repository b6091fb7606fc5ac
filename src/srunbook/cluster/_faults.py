"""Faults on demand: each fault is recorded, then made, and undone by `heal` or `down`.

The commands show these docstrings as their help.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence

from srunbook.cluster._cgroups import clear_groups, limit_processors
from srunbook.cluster._commands import capture
from srunbook.cluster._daemons import start_daemons
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._namespaces import connect, in_network, start_machines
from srunbook.cluster._processes import kill
from srunbook.cluster._state import State

__all__ = ["drain", "drop", "fill_disk", "heal", "kill_node", "link", "preempt", "slow_node"]

NOWHERE = "02:00:00:00:00:ff"
"""A hardware address that no machine has: what is sent there is lost without a word, as behind a broken switch."""

FILLER = "/scratch/.filler"


def shape_link(state: State, node: str, rate: str | None) -> None:
    """Limit the rate of a node's link in both directions, or lift the limit."""
    for machine, device in ((node, "eth0"), (None, f"v-{node}")):
        qdisc = ["tc", "qdisc", "replace" if rate else "del", "dev", device, "root"]
        shape = ["tbf", "rate", rate, "burst", "128kb", "latency", "50ms"] if rate else []
        in_network(state, machine, [*qdisc, *shape])


def _nodes(state: State, names: Sequence[str]) -> list[str]:
    """Return the nodes of these names, which have to be there; all of them without a name."""
    known = state.specification.node_names
    for name in names:
        if name not in known:
            raise SpecificationError(f"node {name!r}: the cluster has {', '.join(known)}, as in fault drain node1")
    return list(names or known)


def _record(state: State, kind: str, **details: str) -> None:
    fault = {"kind": kind, **details}
    if fault not in state.faults:
        state.faults.append(fault)
        state.save()


def _administer(state: State, *command: str) -> None:
    result = capture(state, command, user=None)
    if result.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: {result.stderr.strip()}")


def kill_node(state: State, node: str) -> None:
    """Cut a node's power: its link goes silent, then all its processes end at once.

    Slurm notices after 40 s. `heal` boots the node again.
    """
    _record(state, "kill-node", node=_nodes(state, [node])[0])
    if not state.has(node):
        return
    in_network(state, None, ["ip", "link", "delete", f"v-{node}"])
    kill(state.first_process(node))
    while state.has(node):
        time.sleep(0.01)


def _boot_node(state: State, node: str) -> None:
    if state.has(node):
        return
    clear_groups(state, node)
    start_machines(state, [node])
    connect(state, [node])
    if state.specification.link:
        shape_link(state, node, state.specification.link)
    start_daemons(state, [node])


def drop(state: State, nodes: Sequence[str]) -> None:
    """Silently drop traffic between nodes; each still reaches the controller.

    With one node, drop its traffic to all others; without a node, drop the traffic between all nodes.
    """
    names = _nodes(state, nodes)
    others = state.specification.node_names if len(names) == 1 else names
    pairs = {tuple(sorted((node, other))) for node in names for other in others if node != other}
    if not pairs:
        raise SpecificationError("drop needs two nodes, and this cluster has one: start it with --nodes 2")
    for node, other in sorted(pairs):
        _record(state, "drop", node=node, other=other)
        for here, there in ((node, other), (other, node)):
            address = state.specification.address(there)
            in_network(
                state, here, ["ip", "neigh", "replace", address, "lladdr", NOWHERE, "nud", "permanent", "dev", "eth0"]
            )


def _undrop(state: State, node: str, other: str) -> None:
    for here, there in ((node, other), (other, node)):
        with contextlib.suppress(ClusterError):  # a node that was booted since has forgotten it
            in_network(state, here, ["ip", "neigh", "del", state.specification.address(there), "dev", "eth0"])


def link(state: State, rate: str, nodes: Sequence[str] = ()) -> None:
    """Limit the links of some nodes, or of all nodes, to RATE, such as 100mbit."""
    for node in _nodes(state, nodes):
        _record(state, "link", node=node)
        shape_link(state, node, rate)


def drain(state: State, node: str) -> None:
    """Drain a node, as an administrator does before a repair: its jobs keep running, no new ones start."""
    _record(state, "drain", node=_nodes(state, [node])[0])
    _administer(state, "scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=fault")


def fill_disk(state: State, free: int = 0) -> None:
    """Fill the small disk /scratch, which all machines share, except for FREE KiB."""
    _record(state, "fill-disk")
    _administer(state, "rm", "-rf", FILLER)
    # Everybody may write there: only a new file is sure to be no link to another one. It ends when nothing more fits.
    filled = capture(state, ["dd", "if=/dev/zero", f"of={FILLER}", "bs=64k", "conv=excl"], user=None)
    if "No space left" not in filled.stderr:
        raise ClusterError(f"/scratch could not be filled: {filled.stderr.strip()}")
    if free:
        _administer(state, "truncate", f"--size=-{free}K", FILLER)


def slow_node(state: State, node: str, quota: float = 0.25) -> None:
    """Limit all processes of a node to QUOTA of one CPU."""
    _record(state, "slow-node", node=_nodes(state, [node])[0])
    limit_processors(state, node, quota)


def preempt(state: State, nodes: Sequence[str] = ()) -> None:
    """Preempt jobs in the partition `preempt`: another user's job takes some or all nodes until you heal it."""
    names = _nodes(state, nodes)
    name = f"preempt-{secrets.token_hex(3)}"
    _record(state, "preempt", job=name)
    sizes = [f"--nodes={len(names)}", f"--nodelist={','.join(names)}", "--exclusive", "--mem=0"]
    command = ["sbatch", f"--job-name={name}", "--output=/dev/null", *sizes, "--wrap=sleep infinity"]
    result = capture(state, command, user=list(state.specification.users)[-1])
    if result.returncode != 0:
        raise ClusterError(f"the job that preempts was refused: {result.stderr.strip()}")


def heal(state: State) -> list[dict[str, str]]:
    """Undo every fault, dead nodes first, and return what was undone."""
    faults = sorted(state.faults, key=lambda fault: fault["kind"] != "kill-node")
    for fault in faults:
        _undo(state, **fault)
        state.faults = [other for other in state.faults if other != fault]
        state.save()
    return faults


def _undo(state: State, kind: str, node: str = "", other: str = "", job: str = "") -> None:
    match kind:
        case "kill-node":
            _boot_node(state, node)
        case "drop":
            _undrop(state, node, other)
        case "link":
            with contextlib.suppress(ClusterError):  # a node that was booted since has forgotten it
                shape_link(state, node, state.specification.link)
        case "drain":
            _administer(state, "scontrol", "update", f"NodeName={node}", "State=RESUME")
        case "fill-disk":
            _administer(state, "rm", "-rf", FILLER)
        case "slow-node":
            limit_processors(state, node, state.specification.cpu_quota)
        case "preempt":
            _administer(state, "scancel", f"--name={job}")
