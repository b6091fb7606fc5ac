"""What is told about a cluster that is up: one form for programs, from which the command prints its lines, too."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from srunbook.cluster._daemons import dead_daemons, node_states
from srunbook.cluster._state import State


@dataclass(frozen=True)
class NodeStatus:
    """A node of a cluster.

    Args:
        name: Its name.
        address: Its address in the cluster's own network.
        state: Its state in the short form of `sinfo`, or `unknown` while the controller doesn't answer.
        cpus: CPUs that it claims.
        memory_mib: Memory that it claims, in MiB.
        gres: Generic resources that it claims.
        features: Its features.
    """

    name: str
    address: str
    state: str
    cpus: int
    memory_mib: int
    gres: tuple[str, ...]
    features: tuple[str, ...]


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster that is up.

    Args:
        schema: Version of this format; a change of what a field means changes it.
        name: Name of the cluster.
        slurm: Version of Slurm.
        debian: Debian suite that it comes from.
        users: Its users.
        plugins: Slurm's plugins that shape behaviour: `proctrack`, `task` and `gather`.
        limits: What the cluster may take of this machine: `processors`, which all nodes share; `memory_mib` of the
            whole cluster; `shared_mib`, the size of `/dev/shm` and of `/tmp` on each node; `processes` and threads on
            each node; and `enforced`, which of `memory` and `processes` a cgroup enforces.
        nodes: Its nodes, in the order of their numbers.
        dead: Daemons that should run and don't, by machine; `up` starts them.
        faults: Faults that haven't been healed: the `kind` of each, and what it affects.
    """

    schema: int
    name: str
    slurm: str
    debian: str
    users: tuple[str, ...]
    plugins: dict[str, str]
    limits: dict[str, Any]
    nodes: tuple[NodeStatus, ...]
    dead: dict[str, list[str]]
    faults: tuple[dict[str, str], ...]


def describe(state: State) -> ClusterStatus:
    """Describe a cluster that is up."""
    specification, dead = state.specification, dead_daemons(state)
    # Without a controller or its munge, Slurm's commands wait for a minute.
    states = {} if {"slurmctld", "munged"}.intersection(dead.get("ctl", ())) else node_states(state)
    groups = {node: specification.group_of(node) for node in specification.node_names}
    return ClusterStatus(
        schema=1,
        name=specification.name,
        slurm=state.root["slurm"],
        debian=state.root["suite"],
        users=specification.users,
        plugins={name: state.plugins[name] for name in ("proctrack", "task", "gather")},
        limits={"processors": len(os.sched_getaffinity(0)), **asdict(state.limits)},
        nodes=tuple(
            NodeStatus(
                name=node,
                address=specification.address(node),
                state=states.get(node, "unknown"),
                cpus=group.cpus,
                memory_mib=group.memory_mib,
                gres=group.gres,
                features=group.features,
            )
            for node, group in groups.items()
        ),
        dead=dead,
        faults=tuple(state.faults),
    )
