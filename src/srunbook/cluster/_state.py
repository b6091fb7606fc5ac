"""What a cluster consists of, written down before it is made, so that `down` can undo it after any crash.

What `down` ends and removes follows from the cluster's name and its identity alone; a record can name nothing else.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from srunbook._files import write_whole
from srunbook._json import read_json
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._host import Limits, cache_folder, held, hierarchies, reported
from srunbook.cluster._processes import identity_of, start_time
from srunbook.cluster._sections import CLUSTER_NAME
from srunbook.cluster._specification import Specification


@dataclass
class State:
    """The record of one cluster.

    Args:
        specification: What was asked for.
        identity: Random part of the names of the cluster's cgroups, which are outside its namespaces. It is also in the
            name of the folder `space`, and so in the command lines of its processes.
        phase: How far `up` has come; `ready` at its end.
        supervisor: Process id of the supervisor, on which all other processes depend, once it is known.
        machines: Process id on the host and start time of each machine's first process.
        root: The root it runs on, as in its manifest.
        plugins: Slurm's plugins that shape behaviour.
        limits: What it may take of the machine, set before the phase `supervised`.
        faults: Faults that were made and not yet healed, each with what is needed to heal it.
        binds: What every machine sees of the host: source, target, and `ro` or `rw`.
    """

    __pydantic_config__: ClassVar = {"strict": True}  # a field of another version of srunbook is passed over

    specification: Specification
    identity: str = field(default_factory=lambda: secrets.token_hex(4))
    phase: str = "recorded"
    supervisor: int | None = None
    machines: dict[str, tuple[int, int]] = field(default_factory=dict)
    root: dict[str, Any] = field(default_factory=dict)
    plugins: dict[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    faults: list[dict[str, str]] = field(default_factory=list)
    binds: list[list[str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Return the folder of the cluster."""
        return folder_of(self.specification.name)

    @property
    def space(self) -> Path:
        """Return the folder where the cluster has its file systems in memory, in a namespace of its own."""
        return self.folder / f"space-{self.identity}"

    @property
    def groups(self) -> list[Path]:
        """Return the cgroups of the cluster that there are, one in each hierarchy."""
        groups = groups_of_cluster(self.specification.name, [self.identity])
        return [path for path in groups if path.is_dir()]

    def save(self) -> None:
        """Write the record, whole or not at all."""
        with reported():
            text = TypeAdapter(State).dump_json(self, indent=2, by_alias=True, exclude_defaults=True)
            write_whole(self.folder / "state.json", text + b"\n")

    def enter(self, phase: str) -> None:
        """Record that a phase has ended."""
        self.phase = phase
        self.save()

    @property
    def alive(self) -> bool:
        """Whether the supervisor is running."""
        return self.supervisor is not None and identity_of(self.supervisor, self.folder) == self.identity

    def has(self, machine: str) -> bool:
        """Return whether the first process of a machine is alive, and not another one that has its number now."""
        process, started = self.machines.get(machine, (0, 0))
        return start_time(process) == started and self.alive

    def first_process(self, machine: str) -> int:
        """Return the process id of the first process of a machine, which has to be alive."""
        if self.has(machine):
            return self.machines[machine][0]
        name = self.specification.name
        if self.alive:
            raise ClusterError(f"{machine} is dead: boot it with `srunbook cluster fault heal --name {name}`")
        raise ClusterError(f"cluster {name!r} has gone down: clear it away with `srunbook cluster down --name {name}`")


def folder_of(name: str) -> Path:
    """Return the folder of a cluster."""
    if not re.fullmatch(CLUSTER_NAME, name):
        raise SpecificationError(f"name {name!r}: use lower-case letters, digits and hyphens, as in --name trial")
    return cache_folder() / "clusters" / name


def groups_of_cluster(name: str, identities: Iterable[str]) -> list[Path]:
    """Return the cgroup of a cluster in each of the hierarchies, for each identity, whether it has been made or not."""
    return [hierarchy / f"srunbook-{name}-{identity}" for identity in sorted(identities) for hierarchy in hierarchies()]


def read_state(name: str) -> State | None:
    """Read the record of a cluster, or return None without one."""
    path = folder_of(name) / "state.json"
    if not path.exists():
        return None
    try:
        return read_json(path, State, ValueError)
    except (ValueError, OSError, SpecificationError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ClusterError(
            f"the record {path} cannot be used: {why}. `srunbook cluster down --name {name}` ends and removes "
            "what it can prove to belong to that cluster"
        ) from None


def running_state(name: str) -> State:
    """Read the record of a cluster, which must be up."""
    state = read_state(name)
    if state is None or not state.alive or state.phase != "ready":
        raise ClusterError(f"no cluster {name!r} is up: start one with `srunbook cluster up --name {name}`")
    return state


def names() -> list[str]:
    """Return the names of all clusters with a record."""
    folder = cache_folder() / "clusters"
    return sorted(path.parent.name for path in folder.glob("*/state.json"))


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold off other `up`, `down` and `fault` commands for a cluster; a `ClusterError` says that one is running."""
    try:
        with held(f"cluster-{folder_of(name).name}", wait=False):
            yield
    except BlockingIOError:
        message = f"another command is starting or stopping cluster {name!r}: wait until it has ended"
        raise ClusterError(message) from None
