"""What a cluster consists of, written down before it is made, so that `down` can undo it after any crash."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._host import cache_folder
from srunbook.cluster._specification import Specification, check_name

STOP_AT = "SRUNBOOK_CLUSTER_STOP_AT"
"""Environment variable that names a phase at whose end `up` kills itself: for the tests of interruption."""


@dataclass
class State:
    """The record of one cluster.

    Args:
        specification: What was asked for.
        identity: Random part of the names of what lives outside the cluster's namespaces: its cgroups.
        boot: Identity of the boot of the machine on which it was started; process ids mean nothing on another.
        phase: How far `up` came; `ready` when it ended.
        supervisor: Process id and start time of the process on whose life all others depend, once it is known.
        machines: Process id of the first process of each machine, as the host counts.
        groups: Folders of cgroups.
        root: The root it runs on, as in its manifest.
        plugins: Slurm's plugins that shape behaviour.
        faults: Faults that were made and not yet healed, each with what is needed to heal it.
        binds: What every machine sees of the host: source, target, and `ro` or `rw`.
    """

    specification: Specification
    identity: str = field(default_factory=lambda: secrets.token_hex(4))
    boot: str = field(default_factory=lambda: boot_identity())
    phase: str = "recorded"
    supervisor: tuple[int, int] | None = None
    machines: dict[str, int] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    root: dict[str, Any] = field(default_factory=dict)
    plugins: dict[str, Any] = field(default_factory=dict)
    faults: list[dict[str, str]] = field(default_factory=list)
    binds: list[list[str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Return the folder of the cluster."""
        return folder_of(self.specification.name)

    def save(self) -> None:
        """Write the record, whole or not at all."""
        data = {**asdict(self), "specification": self.specification.to_json()}
        write_whole(self.folder / "state.json", json.dumps(data, indent=2) + "\n")

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
        return start_time(self.supervisor[0]) == self.supervisor[1]


def folder_of(name: str) -> Path:
    """Return the folder of a cluster."""
    return cache_folder() / "clusters" / check_name(name)


def read_state(name: str) -> State | None:
    """Read the record of a cluster, or return None without one.

    Fields of another version of srunbook are passed over, so that its clusters can still be taken down.
    """
    path = folder_of(name) / "state.json"
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    data["specification"] = Specification.from_json(data["specification"])
    data["supervisor"] = tuple(data["supervisor"]) if data["supervisor"] else None
    return State(**{item.name: data[item.name] for item in fields(State) if item.name in data})


def running_state(name: str) -> State:
    """Read the record of a cluster that is up.

    Raises:
        ClusterError: It is not up.
    """
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
    """Hold off other `up`, `down` and `fault` commands for the same cluster, without waiting.

    Raises:
        ClusterError: Another one is at work.
    """
    path = folder_of(name).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(
                f"another command is starting or stopping cluster {name!r}: wait until it has ended"
            ) from None
        yield


def boot_identity() -> str:
    """Return the identity of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_time(process: int) -> int | None:
    """Return when a process was started, in ticks since boot, or None where it is gone or a zombie."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def children(process: int) -> list[int]:
    """Return the process ids of the children of a process, none where it is gone."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(item) for item in text.split()]
