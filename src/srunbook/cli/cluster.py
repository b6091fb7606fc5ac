"""`srunbook cluster`: a real Slurm of several nodes on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from srunbook import cluster, sites
from srunbook.cli._expected import provision

PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def say(text: str) -> None:
    """Tell progress on stderr, so that stdout carries only the product."""
    click.echo(text, err=True)


class Cluster(click.Group):
    """Commands that end with a sentence and a status when something goes wrong: 2 for bad input, 1 for the rest."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except cluster.ClusterError as error:
            say(f"srunbook cluster: {error}")
            sys.exit(2 if isinstance(error, cluster.SpecificationError) else 1)


name_option = click.option("--name", default="srunbook", show_default=True, help="Which cluster.")


@click.group(cls=Cluster, epilog="Example: srunbook cluster up && srunbook cluster exec -- srun -N4 hostname")
def command() -> None:
    """Boot a real Slurm of several nodes on this machine, and use it.

    Needs Linux and root. Exit status: 0, 2 for bad input, 1 if something failed; `exec` and `submit` end with the
    status of the command or the job.
    """


@command.command(epilog="Example: srunbook cluster up --slurm 22.05 --nodes 2")
@click.option("--config", type=click.Path(path_type=Path), help="Nodes, partitions, accounts and more, from a file.")
@click.option(
    "--site", metavar="NAME", help=f"A site to begin from: {', '.join(sites.names())}. The file overrides it."
)
@click.option("--name", show_default="srunbook", help="Which cluster.")
@click.option("--slurm", show_default=cluster.NEWEST, help=f"{', '.join([*cluster.GENERATIONS, cluster.NEWEST])}.")
@click.option("--nodes", type=int, show_default="4", help="Identical nodes, or nodes in each group of a site.")
@click.option("--cpus", type=int, show_default="16", help="CPUs that each node claims.")
@click.option("--memory", show_default="64G", help="Memory that each node claims.")
@click.option("--gpus-per-node", type=int, show_default="4", help="GPUs that each node claims.")
@click.option("--features", show_default="a100", help="Features; the first one is the type of the GPUs.")
@click.option("--cpu-quota", type=float, help="CPUs that each node really may use, such as 0.5.")
@click.option("--link", help="Rate of each node's link, such as 1gbit.")
@click.option("--mirror", help="Debian mirror for making a root. Default: the mirror in this machine's apt.")
def up(config: Path | None, site: str | None, mirror: str | None, **options: Any) -> None:
    """Start a cluster and wait until all its nodes are idle.

    In a cluster that is up, start the daemons that have died. Options override the file, and the
    file overrides the site. A site's cluster has at most 4
    nodes of each kind. The first time, a Debian root with that Slurm is made and kept in the
    cache, which takes 1 to 5 minutes.
    """
    specification = cluster.read_specification(config, given(options), site=site)
    cluster.up(specification, provision(), mirror=mirror, say=say)


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as fields of a specification."""
    chosen = {name: value for name, value in options.items() if value is not None}
    if "features" in chosen:
        chosen["features"] = [item for item in chosen["features"].split(",") if item]
    return chosen


@command.command(epilog="Example: srunbook cluster status --json | jq -r '.nodes[].state'")
@name_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs; the reference describes its fields.")
def status(name: str, as_json: bool) -> None:
    """Show the nodes of a cluster, their states, and what the cluster may take of this machine."""
    status = cluster.describe(cluster.running_state(name))
    if as_json:
        click.echo(json.dumps(asdict(status), indent=2))
        return
    limits, plugins = status.limits, status.plugins
    held = {limit: "" if limit in limits["enforced"] else UNLIMITED for limit in ("memory", "processes")}
    click.echo(f"cluster {name}: Slurm {status.slurm} (Debian {status.debian})")
    click.echo(f"plugins: {', '.join(plugins.values())}")
    click.echo(f"CPUs: {limits['processors']}, which all nodes share")
    click.echo(f"memory: {limits['memory_mib'] / 1024:.1f} GiB for the whole cluster{held['memory']}")
    click.echo(f"processes: {limits['processes']} on each node{held['processes']}")
    click.echo(f"files in memory: {limits['shared_mib'] / 1024:.1f} GiB in /dev/shm of each node, and as much in /tmp")
    for line in dead(status.dead):
        click.echo(line)
    for node in status.nodes:
        click.echo(f"{node.name} {node.address} {node.state}")


UNLIMITED = ", which nothing enforces: no cgroup for it is writable here"


def dead(daemons: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each machine on which daemons have died."""
    return [
        f"dead on {machine}: {', '.join(names)}; run the same `srunbook cluster up` as before"
        for machine, names in daemons.items()
    ]


def running(name: str) -> cluster.State:
    """Return a cluster that is up, and say which daemons have died: without them, Slurm's commands may just wait."""
    state = cluster.running_state(name)
    for line in dead(cluster.dead_daemons(state)):
        say(line)
    return state


@command.command("exec", context_settings=PASS_ON, epilog="Example: srunbook cluster exec -- srun -N4 hostname")
@name_option
@click.option("--user", default=cluster.USER, show_default=True, help="Who runs it: a user of the cluster, or root.")
@click.option("--node", default="login", show_default=True, help="Where it runs: login, ctl, node1, ...")
@click.argument("argv", nargs=-1, required=True)
def execute(name: str, user: str, node: str, argv: tuple[str, ...]) -> None:
    """Run a command on the login node, as an ordinary user or, with --user root, as the administrator."""
    sys.exit(cluster.execute(running(name), argv, user=user, machine=node))


@command.command(
    context_settings=PASS_ON, epilog="Example: srunbook cluster submit slurm/jax_multinode/allreduce.sbatch"
)
@name_option
@click.option("--user", default=cluster.USER, show_default=True, help="Who submits it.")
@click.option("--timeout", type=float, help="Seconds after which the job is cancelled.")
@click.option(
    "--with",
    "extra",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file or folder that the job needs beside the script. May be repeated.",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1)
def submit(
    name: str, user: str, timeout: float | None, extra: tuple[Path, ...], file: Path, arguments: tuple[str, ...]
) -> None:
    """Submit a job script unmodified, follow its output, and end with its rows in sacct and its exit status.

    The script is submitted from a new folder in the user's home directory, with the Python and configuration files
    beside it. For an array, this waits for all elements; for a heterogeneous job, for all
    components. The exit status comes from the first one that failed.
    """
    job = cluster.submit(
        running(name),
        file,
        arguments,
        user=user,
        extra=extra,
        timeout=timeout,
        follow=lambda text: click.echo(text, nl=False),
    )
    for row in job.rows:
        say(" ".join(row.values()))
    sys.exit(job.exit_status)


@command.group(epilog="Example: srunbook cluster fault drop node1 node2 && srunbook cluster fault heal")
def fault() -> None:
    """Break something to see how a job reacts; `heal` and `down` undo it."""


node, nodes = click.Argument(["node"]), click.Argument(["nodes"], nargs=-1)
FAULTS: list[tuple[Callable[..., object], list[click.Parameter], str]] = [
    (cluster.faults.kill_node, [node], "node2"),
    (cluster.faults.drop, [nodes], "node1 node2"),
    (cluster.faults.link, [click.Argument(["rate"]), nodes], "100mbit"),
    (cluster.faults.drain, [node], "node1"),
    (cluster.faults.fill_disk, [click.Argument(["free"], type=click.IntRange(0, 60_000), default=0)], "512"),
    (
        cluster.faults.slow_node,
        [node, click.Argument(["quota"], type=click.FloatRange(0.05, 64), default=0.25)],
        "node1 0.25",
    ),
    (cluster.faults.preempt, [nodes], "node1 node2"),
]
"""Functions that break something, their arguments on the command line, and an example of these."""


def add_fault(make: Callable[..., object], arguments: list[click.Parameter], example: str) -> None:
    """Add the command that calls such a function."""

    def run(name: str, **values: Any) -> None:
        with cluster.locked(name):
            make(cluster.running_state(name), **values)
        say("done; `srunbook cluster fault heal` undoes it")

    kind = make.__name__.replace("_", "-")
    name = click.Option(["--name"], default="srunbook", show_default=True, help="Which cluster.")
    epilog = f"Example: srunbook cluster fault {kind} {example}"
    fault.add_command(click.Command(kind, callback=run, params=[name, *arguments], help=make.__doc__, epilog=epilog))


for entry in FAULTS:
    add_fault(*entry)


@fault.command(epilog="Example: srunbook cluster fault heal")
@name_option
def heal(name: str) -> None:
    """Undo all faults."""
    with cluster.locked(name):
        for item in cluster.faults.heal(cluster.running_state(name)):
            say(f"healed: {' '.join(item.values())}")


@command.command(epilog="Example: srunbook cluster down")
@name_option
def down(name: str) -> None:
    """Stop a cluster and remove all of it, including what an interrupted start left."""
    say(f"cluster {name!r} is down" if cluster.down(name) else f"there is no cluster {name!r}")
