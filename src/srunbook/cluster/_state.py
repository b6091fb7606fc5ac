"""What a cluster consists of, written down before it is made, so that `down` can undo it after any crash.

What `down` ends and removes follows from the cluster's name and its identity alone; a record can name nothing else.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from srunbook._files import write_whole
from srunbook._json import read_json
from srunbook.cluster._cache import cache_folder, held, trusted
from srunbook.cluster._errors import ClusterError, RecordError, SpecificationError
from srunbook.cluster._host import hierarchies
from srunbook.cluster._limits import Limits
from srunbook.cluster._processes import boot_identity, identity_of, is_first_within, start_time
from srunbook.cluster._room import reported
from srunbook.cluster._specification import Specification
from srunbook.cluster._values import check_name

STOP_AT = "SRUNBOOK_CLUSTER_STOP_AT"
"""Environment variable that names a phase at whose end `up` kills itself: for the tests of interruption."""


@dataclass
class State:
    """The record of one cluster.

    Args:
        specification: What was asked for.
        identity: Random part of the names of what lives outside the cluster's namespaces: its cgroups. It is in the
            name of the folder `space` and so in the command lines of its processes, too.
        boot: Identity of the boot of the machine on which it was started; process ids mean nothing on another.
        phase: How far `up` came; `ready` when it ended.
        supervisor: Process id and start time of the process on whose life all others depend, once it is known.
        machines: Process id of the first process of each machine, as the host counts.
        root: The root it runs on, as in its manifest.
        plugins: Slurm's plugins that shape behaviour.
        limits: What it may take of the machine, once that is settled.
        faults: Faults that were made and not yet healed, each with what is needed to heal it.
        binds: What every machine sees of the host: source, target, and `ro` or `rw`.
    """

    __pydantic_config__: ClassVar = {"strict": True}  # a field of another version of srunbook is passed over

    specification: Specification
    identity: str = field(default_factory=lambda: secrets.token_hex(4))
    boot: str = field(default_factory=lambda: boot_identity())
    phase: str = "recorded"
    supervisor: tuple[int, int] | None = None
    machines: dict[str, int] = field(default_factory=dict)
    root: dict[str, Any] = field(default_factory=dict)
    plugins: dict[str, Any] = field(default_factory=dict)
    limits: Limits | None = None
    faults: list[dict[str, str]] = field(default_factory=list)
    binds: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Check what becomes part of a path."""
        if not re.fullmatch("[0-9a-f]{8}", self.identity):
            raise ValueError(f"field 'identity' should be 8 hexadecimal digits, found {self.identity!r}")

    @property
    def folder(self) -> Path:
        """Return the folder of the cluster."""
        return folder_of(self.specification.name)

    @property
    def space(self) -> Path:
        """Return the folder on whose path the cluster has its file systems in memory, in a namespace of its own."""
        return self.folder / f"space-{self.identity}"

    @property
    def groups(self) -> list[Path]:
        """Return the cgroups of the cluster that there are, one in each hierarchy."""
        found = groups_of_cluster(self.specification.name, [self.identity], hierarchies())
        return [path for path in found if path.is_dir()]

    def save(self) -> None:
        """Write the record, whole or not at all.

        Raises:
            ClusterError: The disk is full, or it cannot be written for another reason.
        """
        with reported():
            write_whole(self.folder / "state.json", json.dumps(asdict(self), indent=2, default=_plain) + "\n")

    def enter(self, phase: str) -> None:
        """Record that a phase has ended, and die there where a test asks for it."""
        self.phase = phase
        self.save()
        if os.environ.get(STOP_AT) == phase:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def alive(self) -> bool:
        """Tell whether the process on which all others depend is alive."""
        if self.supervisor is None or self.boot != boot_identity():
            return False
        process, started = self.supervisor
        return start_time(process) == started and identity_of(process, self.folder) == self.identity

    def has(self, machine: str) -> bool:
        """Tell whether the first process of a machine is alive, and not another one that has its number now."""
        if self.supervisor is None or not self.alive:
            return False
        return is_first_within(self.machines.get(machine, 0), self.supervisor[0])

    def first_process(self, machine: str) -> int:
        """Return the process id of the first process of a machine.

        Raises:
            ClusterError: It is dead.
        """
        if self.has(machine):
            return self.machines[machine]
        name = self.specification.name
        if self.alive:
            raise ClusterError(f"{machine} is dead: boot it with `srunbook cluster fault heal --name {name}`")
        raise ClusterError(f"cluster {name!r} has gone down: clear it away with `srunbook cluster down --name {name}`")


def _plain(value: Any) -> Any:
    """Return the specification as JSON has it, without what has its default."""
    if isinstance(value, Specification):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    raise TypeError(f"a record has no {type(value).__name__}")


def folder_of(name: str) -> Path:
    """Return the folder of a cluster.

    Raises:
        TrustError: Another user could have written what lies there.
    """
    return trusted(cache_folder() / "clusters" / check_name(name))


def groups_of_cluster(name: str, identities: Iterable[str], mounted: Sequence[Path]) -> list[Path]:
    """Return the cgroup of a cluster in each of the hierarchies, for each identity, whether it has been made or not."""
    return [hierarchy / f"srunbook-{name}-{identity}" for identity in sorted(identities) for hierarchy in mounted]


def read_state(name: str) -> State | None:
    """Read the record of a cluster, or return None without one.

    Args:
        name: Name of the cluster.

    Raises:
        RecordError: It is broken, or that of another cluster.
        TrustError: Another user could have written it.
    """
    path = trusted(folder_of(name) / "state.json")
    if not path.exists():
        return None
    try:
        state = read_json(path, State, ValueError)
        if state.specification.name != name:
            raise ValueError(f"it is that of cluster {state.specification.name!r}")
    except (ValueError, OSError, SpecificationError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise RecordError(
            f"the record {path} cannot be used: {why}. `srunbook cluster down --name {name}` ends and removes "
            "what it can prove to belong to that cluster"
        ) from None
    return state


def running_state(name: str) -> State:
    """Read the record of a cluster that is up.

    Args:
        name: Name of the cluster.

    Raises:
        ClusterError: It is not up, or its record cannot be used.
    """
    state = read_state(name)
    if state is None or not state.alive or state.phase != "ready":
        raise ClusterError(f"no cluster {name!r} is up: start one with `srunbook cluster up --name {name}`")
    return state


def names() -> list[str]:
    """Return the names of all clusters with a record."""
    folder = trusted(cache_folder() / "clusters")
    return sorted(path.parent.name for path in folder.glob("*/state.json"))


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold off other `up`, `down` and `fault` commands for the same cluster, without waiting.

    Args:
        name: Name of the cluster.

    Raises:
        ClusterError: Another one is at work.
    """
    try:
        with held(folder_of(name), wait=False):
            yield
    except BlockingIOError:
        raise ClusterError(
            f"another command is starting or stopping cluster {name!r}: wait until it has ended"
        ) from None
