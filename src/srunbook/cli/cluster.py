"""`srunbook cluster`: a real Slurm of several nodes on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from srunbook import cluster
from srunbook.cli._checkout import programs_of, provision
from srunbook.cluster import ClusterError, Specification, SpecificationError

PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def say(text: str) -> None:
    """Tell progress on stderr, so that stdout carries only the product."""
    click.echo(text, err=True)


def clearly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what can go wrong into a sentence and an exit status: 2 for bad input, 1 for the rest."""

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except SpecificationError as error:
            say(f"srunbook cluster: {error}")
            sys.exit(2)
        except ClusterError as error:
            say(f"srunbook cluster: {error}")
            sys.exit(1)

    return wrapped


name_option = click.option("--name", default="srunbook", show_default=True, help="Which cluster.")
user_option = click.option("--user", default=cluster.USER, show_default=True, help="As whom.")


@click.group(epilog="Example: srunbook cluster up && srunbook cluster exec -- srun -N4 hostname")
def command() -> None:
    """Boot a real Slurm of several nodes on this machine, and use it.

    Needs Linux and root. Exit status: 0, 2 for bad input, 1 where something failed; `exec` and `submit` end with the
    status of the command or the job.
    """


@command.command(epilog="Example: srunbook cluster up --slurm 22.05 --nodes 2")
@name_option
@click.option(
    "--slurm", default=cluster.NEWEST, show_default=True, help=f"{', '.join([*cluster.GENERATIONS, cluster.NEWEST])}."
)
@click.option("--nodes", type=int, default=4, show_default=True, help="Number of nodes, 1 to 64.")
@click.option("--cpus", type=int, default=16, show_default=True, help="CPUs that each node claims.")
@click.option("--memory", default="64G", show_default=True, help="Memory that each node claims.")
@click.option("--gpus-per-node", type=int, default=4, show_default=True, help="GPUs that each node claims.")
@click.option("--features", default="a100", show_default=True, help="Features; the first one is the type of the GPUs.")
@click.option("--cpu-quota", type=float, help="CPUs that each node really may use, such as 0.5.")
@click.option("--link", help="Rate of each node's link, such as 1gbit.")
@click.option("--mirror", help="Debian mirror for making a root; that of this machine's apt by default.")
@clearly
def up(features: str, mirror: str | None, **options: Any) -> None:
    """Start a cluster; ends when all its nodes are idle.

    The first time, a Debian root with that Slurm is made and kept in the cache, which takes a minute or two.
    """
    specification = Specification(features=tuple(item for item in features.split(",") if item), **options)
    cluster.up(specification, provision(), mirror=mirror, say=say)


@command.command(epilog="Example: srunbook cluster status")
@name_option
@clearly
def status(name: str) -> None:
    """Show the nodes of a cluster, their states, and what the cluster may take of this machine."""
    state = cluster.running_state(name)
    states = cluster.status(name)
    click.echo(f"cluster {name}: Slurm {state.root['slurm']} (Debian {state.root['suite']})")
    click.echo(f"plugins: {state.plugins['proctrack']}, {state.plugins['task']}, {state.plugins['gather']}")
    for line in state.limits.describe() if state.limits else ():
        click.echo(f"limit: {line}")
    for node in state.specification.node_names:
        click.echo(f"{node} {state.specification.address(node)} {states.get(node, 'unknown')}")


@command.command("exec", context_settings=PASS_ON, epilog="Example: srunbook cluster exec -- srun -N4 hostname")
@name_option
@user_option
@click.option("--node", default="login", show_default=True, help="On which machine: login, ctl, node1, ...")
@click.argument("argv", nargs=-1, required=True)
@clearly
def execute(name: str, user: str, node: str, argv: tuple[str, ...]) -> None:
    """Run a command as an ordinary user, on the login node."""
    sys.exit(cluster.execute(cluster.running_state(name), argv, user=user, machine=node))


@command.command(epilog="Example: srunbook cluster shell")
@name_option
@user_option
@click.option("--node", default="login", show_default=True, help="On which machine: login, ctl, node1, ...")
@clearly
def shell(name: str, user: str, node: str) -> None:
    """Open a shell as an ordinary user, on the login node."""
    sys.exit(cluster.execute(cluster.running_state(name), ["bash", "-i"], user=user, machine=node))


@command.command(
    context_settings=PASS_ON, epilog="Example: srunbook cluster submit slurm/jax_multinode/allreduce.sbatch"
)
@name_option
@user_option
@click.option("--timeout", type=float, help="Seconds after which the job is cancelled.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1)
@clearly
def submit(name: str, user: str, timeout: float | None, file: Path, arguments: tuple[str, ...]) -> None:
    """Submit a job script unmodified, follow its output, and end with its row in sacct and its exit status.

    The script is submitted from a new folder of the user's home, beside the programs of its guide or the Python
    files that lie next to it.
    """
    job = cluster.submit(
        cluster.running_state(name),
        file,
        arguments,
        user=user,
        extra=programs_of(file),
        timeout=timeout,
        follow=lambda text: click.echo(text, nl=False),
    )
    for row in job.rows:
        say(" ".join(row.values()))
    sys.exit(job.exit_status)


@command.group(epilog="Example: srunbook cluster fault drop node1 node2 && srunbook cluster fault heal")
def fault() -> None:
    """Break something, to see what a job makes of it; `heal` and `down` undo it."""


def broken(name: str, make: Callable[[cluster.State], object], done: str) -> None:
    """Make a fault and says so."""
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


@command.command(epilog="Example: srunbook cluster down")
@name_option
@clearly
def down(name: str) -> None:
    """Stop a cluster and remove all of it; also what an interrupted start left."""
    say(f"cluster {name!r} is down" if cluster.down(name) else f"there is no cluster {name!r}")
