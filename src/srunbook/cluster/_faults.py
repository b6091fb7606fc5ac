"""Faults on demand: each is put on record, then made, and undone by `heal` or with the whole cluster."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Sequence

from srunbook.cluster._cgroups import clear_groups, limit_processors
from srunbook.cluster._commands import capture
from srunbook.cluster._daemons import start_daemons
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._namespaces import connect, in_network, start_machines
from srunbook.cluster._processes import kill
from srunbook.cluster._sections import parse_rate
from srunbook.cluster._state import State

__all__ = ["drain", "drop", "fill_disk", "heal", "kill_node", "link", "preempt", "resume", "slow_node"]

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
    """Cut a node's power: its link goes silent, then all its processes are gone at once.

    Slurm notices after SlurmdTimeout, 40 s. `heal` boots the node again.

    Args:
        state: The cluster.
        node: The node.
    """
    _record(state, "kill-node", node=_nodes(state, [node])[0])
    if not state.has(node):
        return
    in_network(state, None, ["ip", "link", "delete", f"v-{node}"])
    kill(state.first_process(node))
    while state.has(node):
        time.sleep(0.01)


def _boot_node(state: State, fault: dict[str, str]) -> None:
    node = fault["node"]
    if state.has(node):
        return
    clear_groups(state, node)
    start_machines(state, [node])
    connect(state, [node])
    if state.specification.link:
        shape_link(state, node, state.specification.link)
    start_daemons(state, [node])


def drop(state: State, nodes: Sequence[str]) -> None:
    """Drop all traffic between some nodes without a word; each still reaches the controller.

    Args:
        state: The cluster.
        nodes: Two or more nodes; of one, the traffic to all other nodes is dropped.
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


def _undrop(state: State, fault: dict[str, str]) -> None:
    node, other = fault["node"], fault["other"]
    for here, there in ((node, other), (other, node)):
        with contextlib.suppress(ClusterError):  # a node that was booted since has forgotten it
            in_network(state, here, ["ip", "neigh", "del", state.specification.address(there), "dev", "eth0"])


def link(state: State, rate: str, nodes: Sequence[str] = ()) -> None:
    """Limit the rate of the links of some nodes, or of all.

    Args:
        state: The cluster.
        rate: Such as 100mbit.
        nodes: The nodes; all by default.
    """
    parse_rate(rate)
    for node in _nodes(state, nodes):
        _record(state, "link", node=node)
        shape_link(state, node, rate)


def _unlink(state: State, fault: dict[str, str]) -> None:
    with contextlib.suppress(ClusterError):  # a node that was booted since has forgotten it
        shape_link(state, fault["node"], state.specification.link)


def drain(state: State, node: str) -> None:
    """Drain a node, as an administrator does before a repair: its jobs continue, no new ones start.

    Args:
        state: The cluster.
        node: The node.
    """
    _record(state, "drain", node=_nodes(state, [node])[0])
    _administer(state, "scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=fault")


def resume(state: State, node: str) -> None:
    """Give a drained node back to the scheduler.

    Args:
        state: The cluster.
        node: The node.
    """
    _administer(state, "scontrol", "update", f"NodeName={_nodes(state, [node])[0]}", "State=RESUME")
    state.faults = [fault for fault in state.faults if fault != {"kind": "drain", "node": node}]
    state.save()


def _undrain(state: State, fault: dict[str, str]) -> None:
    resume(state, fault["node"])


def fill_disk(state: State, free: int = 0) -> None:
    """Fill the small disk /scratch, which all machines share.

    Args:
        state: The cluster.
        free: Room to leave, in KiB.
    """
    if not 0 <= free <= 60_000:
        raise SpecificationError(f"room {free} KiB: allowed are 0 to 60000, as in fault fill-disk 512")
    _record(state, "fill-disk")
    _administer(state, "rm", "-rf", FILLER)
    # Everybody may write there: only a new file is sure to be no link to another one. It ends when nothing more fits.
    filled = capture(state, ["dd", "if=/dev/zero", f"of={FILLER}", "bs=64k", "conv=excl"], user=None)
    if "No space left" not in filled.stderr:
        raise ClusterError(f"/scratch could not be filled: {filled.stderr.strip()}")
    if free:
        _administer(state, "truncate", f"--size=-{free}K", FILLER)


def _empty_disk(state: State, fault: dict[str, str]) -> None:  # noqa: ARG001 - the form of all that undo
    _administer(state, "rm", "-rf", FILLER)


def slow_node(state: State, node: str, quota: float = 0.25) -> None:
    """Limit all processes of a node to a share of one CPU.

    Args:
        state: The cluster.
        node: The node.
        quota: Share of one CPU.
    """
    if not 0.05 <= quota <= 64:
        raise SpecificationError(f"quota {quota}: allowed are 0.05 to 64 CPUs, as in fault slow-node node1 0.25")
    _record(state, "slow-node", node=_nodes(state, [node])[0])
    limit_processors(state, node, quota)


def _unslow(state: State, fault: dict[str, str]) -> None:
    limit_processors(state, fault["node"], state.specification.cpu_quota)


def preempt(state: State, nodes: Sequence[str] = ()) -> str:
    """Preempt what runs in the partition `preempt`: another user's job takes whole nodes, until it is healed.

    Args:
        state: The cluster.
        nodes: The nodes; all by default.

    Returns:
        Number of the job that takes them.
    """
    names = _nodes(state, nodes)
    name = f"preempt-{secrets.token_hex(3)}"
    _record(state, "preempt", job=name)
    sizes = [f"--nodes={len(names)}", f"--nodelist={','.join(names)}", "--exclusive", "--mem=0"]
    command = ["sbatch", "--parsable", f"--job-name={name}", f"--partition={state.specification.default_partition}"]
    command += ["--output=/dev/null", *sizes, "--wrap=sleep infinity"]
    result = capture(state, command, user=list(state.specification.users)[-1])
    if result.returncode != 0:
        raise ClusterError(f"the job that preempts was refused: {result.stderr.strip()}")
    return re.split(r"[;\s]", result.stdout)[0]


def _release(state: State, fault: dict[str, str]) -> None:
    _administer(state, "scancel", f"--name={fault['job']}")


_UNDO: dict[str, Callable[[State, dict[str, str]], None]] = {
    "kill-node": _boot_node,
    "drop": _undrop,
    "link": _unlink,
    "drain": _undrain,
    "fill-disk": _empty_disk,
    "slow-node": _unslow,
    "preempt": _release,
}


def heal(state: State) -> list[dict[str, str]]:
    """Undo every fault, dead nodes first.

    Returns:
        What was undone.
    """
    faults = sorted(state.faults, key=lambda fault: fault["kind"] != "kill-node")
    for fault in faults:
        _UNDO[fault["kind"]](state, fault)
        state.faults = [other for other in state.faults if other != fault]
        state.save()
    return faults
