"""What is told about a cluster that is up: one form for programs, from which the command prints its lines, too."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from srunbook.cluster._daemons import node_states
from srunbook.cluster._sections import field, schema_of
from srunbook.cluster._state import State


class Told(BaseModel):
    """A part of what is told; it cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class NodeStatus(Told):
    """A node of a cluster."""

    name: str = field("Its name.", "node1")
    address: str = field("Its address in the cluster's own network.", "10.77.0.1")
    state: str = field("Its state in `sinfo`'s short form, or `unknown` while the controller doesn't answer.", "idle")
    cpus: int = field("CPUs that it claims.", 16)
    memory_mib: int = field("Memory that it claims, in MiB.", 65536)
    gres: tuple[str, ...] = field("Generic resources that it claims.", ["gpu:a100:4"])
    features: tuple[str, ...] = field("Its features.", ["a100"])


class PluginStatus(Told):
    """Slurm's plugins that shape behaviour."""

    proctrack: str = field("The plugin that tracks processes.", "proctrack/cgroup")
    task: str = field("The plugin that confines tasks.", "task/cgroup")
    gather: str = field("The plugin that measures tasks.", "jobacct_gather/cgroup")


class LimitStatus(Told):
    """What a cluster may take of this machine."""

    processors: int = field("CPUs of this machine, which all nodes share.", 2)
    memory_mib: int = field("Memory of the whole cluster, in MiB.", 19284)
    shared_mib: int = field("Size of `/dev/shm`, and of `/tmp`, on each node, in MiB.", 2410)
    processes: int = field("Processes and threads on each node.", 4096)
    enforced: tuple[Annotated[str, Field(pattern="^(memory|processes)$")], ...] = field(
        "Which of these limits a cgroup enforces: `memory`, `processes`.", ["memory", "processes"]
    )


class ClusterStatus(Told):
    """A cluster that is up."""

    version: Literal[1] = field("Version of this format: 1.", 1, 1, alias="schema")
    name: str = field("Name of the cluster.", "srunbook")
    slurm: str = field("Version of Slurm.", "22.05.8")
    debian: str = field("Debian suite that it comes from.", "bookworm")
    users: tuple[str, ...] = field("Its users.", ["alice", "bob"])
    plugins: PluginStatus = Field(description="Slurm's plugins that shape behaviour.")
    limits: LimitStatus = Field(description="How much of this machine it may use.")
    nodes: tuple[NodeStatus, ...] = Field(description="Its nodes, in the order of their numbers.")
    faults: tuple[dict[str, str], ...] = field(
        "Faults that haven't been healed: the `kind` of each, and what it affects.",
        [{"kind": "drain", "node": "node1"}],
    )


def describe(state: State) -> ClusterStatus:
    """Describe a cluster that is up."""
    specification, states = state.specification, node_states(state)
    groups = {node: specification.group_of(node) for node in specification.node_names}
    return ClusterStatus(
        name=specification.name,
        slurm=state.root["slurm"],
        debian=state.root["suite"],
        users=tuple(specification.users),
        plugins=PluginStatus(**{name: state.plugins[name] for name in PluginStatus.model_fields}),
        limits=LimitStatus(processors=len(os.sched_getaffinity(0)), **asdict(state.limits)),
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
        faults=tuple(state.faults),
    )


def status_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a `ClusterStatus`."""
    return schema_of(ClusterStatus, "serialization")
