"""What is told about a cluster that is up: one form for programs, from which the command prints its lines, too."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from srunbook.cluster._daemons import node_states
from srunbook.cluster._limits import limits_here
from srunbook.cluster._state import State


class Told(BaseModel):
    """A part of what is told; it cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class NodeStatus(Told):
    """A node of a cluster."""

    name: str = Field(description="Its name.", examples=["node1"])
    address: str = Field(description="Its address in the cluster's own network.", examples=["10.77.0.1"])
    state: str = Field(
        description="Its state in the short words of `sinfo`, or `unknown` while the controller does not answer.",
        examples=["idle"],
    )
    cpus: int = Field(description="CPUs that it claims.", examples=[16])
    memory_mib: int = Field(description="Memory that it claims, in MiB.", examples=[65536])
    gres: tuple[str, ...] = Field(description="Generic resources that it claims.", examples=[["gpu:a100:4"]])
    features: tuple[str, ...] = Field(description="Its features.", examples=[["a100"]])


class PluginStatus(Told):
    """Slurm's plugins that shape behaviour."""

    proctrack: str = Field(description="The plugin that tracks processes.", examples=["proctrack/cgroup"])
    task: str = Field(description="The plugin that confines tasks.", examples=["task/cgroup"])
    gather: str = Field(description="The plugin that measures tasks.", examples=["jobacct_gather/cgroup"])


class LimitStatus(Told):
    """What a cluster may take of this machine."""

    processors: int = Field(description="CPUs of this machine, which all nodes share.", examples=[2])
    memory_mib: int = Field(description="Memory of the whole cluster, in MiB.", examples=[19284])
    shared_mib: int = Field(description="Size of `/dev/shm`, and of `/tmp`, on each node, in MiB.", examples=[2410])
    processes: int = Field(description="Processes and threads on each node.", examples=[4096])
    enforced: tuple[Annotated[str, Field(pattern="^(memory|processes)$")], ...] = Field(
        description="Which of `memory_mib` and `processes` hold by a cgroup: `memory`, `processes`.",
        examples=[["memory", "processes"]],
    )


class ClusterStatus(Told):
    """A cluster that is up."""

    version: Literal[1] = Field(default=1, alias="schema", description="Version of this form: 1.", examples=[1])
    name: str = Field(description="Name of the cluster.", examples=["srunbook"])
    slurm: str = Field(description="Version of Slurm.", examples=["22.05.8"])
    debian: str = Field(description="Debian suite that it comes from.", examples=["bookworm"])
    users: tuple[str, ...] = Field(description="Its users.", examples=[["alice", "bob"]])
    plugins: PluginStatus = Field(description="Slurm's plugins that shape behaviour.")
    limits: LimitStatus = Field(description="What it may take of this machine.")
    nodes: tuple[NodeStatus, ...] = Field(description="Its nodes, in the order of their numbers.")
    faults: tuple[dict[str, str], ...] = Field(
        description="Faults that were made and not healed: the `kind` of each, and what it is about.",
        examples=[[{"kind": "drain", "node": "node1"}]],
    )

    def json_text(self) -> str:
        """Return it as JSON."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def describe(state: State) -> ClusterStatus:
    """Describe a cluster that is up.

    Args:
        state: The cluster.
    """
    specification, limits = state.specification, state.limits or limits_here(state.specification)
    states = node_states(state)
    groups = {node: specification.group_of(node) for node in specification.node_names}
    return ClusterStatus(
        name=specification.name,
        slurm=state.root["slurm"],
        debian=state.root["suite"],
        users=tuple(specification.users),
        plugins=PluginStatus(**{name: state.plugins[name] for name in PluginStatus.model_fields}),
        limits=LimitStatus(
            processors=len(os.sched_getaffinity(0)),
            memory_mib=limits.memory_mib,
            shared_mib=limits.shared_mib,
            processes=limits.processes,
            enforced=limits.grouped,
        ),
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
    made = ClusterStatus.model_json_schema(by_alias=True, mode="serialization")
    for model in [made, *made.get("$defs", {}).values()]:
        for field in model.get("properties", {}).values():
            field.pop("title", None)
    return made
