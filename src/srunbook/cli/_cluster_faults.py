"""`srunbook cluster fault`: faults on demand."""

from __future__ import annotations

from collections.abc import Callable

import click

from srunbook import cluster
from srunbook.cli._cluster_shared import clearly, name_option, say


@click.group(epilog="Example: srunbook cluster fault drop node1 node2 && srunbook cluster fault heal")
def fault() -> None:
    """Break something, to see what a job makes of it; `heal` and `down` undo it."""


def broken(name: str, make: Callable[[cluster.State], object], done: str) -> None:
    """Make a fault and say so."""
    with cluster.locked(name):
        make(cluster.running_state(name))
    say(done)


@fault.command("kill-node", epilog="Example: srunbook cluster fault kill-node node2")
@name_option
@click.argument("node")
@clearly
def kill_node(name: str, node: str) -> None:
    """Cut a node's power; Slurm notices after 20 s."""
    broken(name, lambda state: cluster.faults.kill_node(state, node), f"{node} is dead")


@fault.command(epilog="Example: srunbook cluster fault drop node1 node2")
@name_option
@click.argument("nodes", nargs=-1)
@clearly
def drop(name: str, nodes: tuple[str, ...]) -> None:
    """Drop traffic between nodes without a word (of one node: to all others; without a node: between all)."""
    broken(name, lambda state: cluster.faults.drop(state, nodes), f"traffic between {' '.join(nodes) or 'all'} is lost")


@fault.command(epilog="Example: srunbook cluster fault link 100mbit")
@name_option
@click.argument("rate")
@click.argument("nodes", nargs=-1)
@clearly
def link(name: str, rate: str, nodes: tuple[str, ...]) -> None:
    """Limit the links of nodes, or of all, to RATE."""
    broken(name, lambda state: cluster.faults.link(state, rate, nodes), f"{' '.join(nodes) or 'all'} at {rate}")


@fault.command(epilog="Example: srunbook cluster fault drain node1")
@name_option
@click.argument("node")
@clearly
def drain(name: str, node: str) -> None:
    """Drain a node: its jobs go on, no new ones start."""
    broken(name, lambda state: cluster.faults.drain(state, node), f"{node} is draining")


@fault.command(epilog="Example: srunbook cluster fault resume node1")
@name_option
@click.argument("node")
@clearly
def resume(name: str, node: str) -> None:
    """Give a drained node back to the scheduler."""
    broken(name, lambda state: cluster.faults.resume(state, node), f"{node} is back")


@fault.command("fill-disk", epilog="Example: srunbook cluster fault fill-disk 512")
@name_option
@click.argument("free", type=int, default=0)
@clearly
def fill_disk(name: str, free: int) -> None:
    """Fill the small shared disk /scratch, but for FREE KiB."""
    broken(name, lambda state: cluster.faults.fill_disk(state, free), f"/scratch has {free} KiB free")


@fault.command("slow-node", epilog="Example: srunbook cluster fault slow-node node1 0.25")
@name_option
@click.argument("node")
@click.argument("quota", type=float, default=0.25)
@clearly
def slow_node(name: str, node: str, quota: float) -> None:
    """Limit a node to QUOTA of one CPU."""
    broken(name, lambda state: cluster.faults.slow_node(state, node, quota), f"{node} has {quota} CPUs")


@fault.command(epilog="Example: srunbook cluster fault preempt node1 node2")
@name_option
@click.argument("nodes", nargs=-1)
@clearly
def preempt(name: str, nodes: tuple[str, ...]) -> None:
    """Preempt the jobs of the partition `preempt` on nodes, or on all."""
    broken(
        name, lambda state: cluster.faults.preempt(state, nodes), f"{' '.join(nodes) or 'all'} are wanted by another"
    )


@fault.command(epilog="Example: srunbook cluster fault heal")
@name_option
@clearly
def heal(name: str) -> None:
    """Undo all faults."""
    with cluster.locked(name):
        for item in cluster.faults.heal(cluster.running_state(name)):
            say(f"healed: {' '.join(item.values())}")
