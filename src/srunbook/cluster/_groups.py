"""The cgroups of a cluster: one for each of its machines, in every hierarchy that Slurm, a limit or a fault uses."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._host import CGROUPS, hierarchies
from srunbook.cluster._limits import limits_here
from srunbook.cluster._scripts import Bind
from srunbook.cluster._state import State, groups_of_cluster

LIMITING = {"cpu", "memory", "pids"}
"""Controllers of version 1 whose groups the commands of a machine join; the other ones are left to Slurm."""


def limiting_groups(state: State, machine: str) -> list[Path]:
    """Return the groups that limit a machine; its commands join them."""
    return [path for path in groups_of(state, machine) if _limits(path.parent.parent)]


def limiting_command(state: State) -> list[str]:
    """Return what to put before a command where no cgroup limits processes, or nothing.

    Each user may then have so many in the whole cluster. The limit is inherited, and Slurm passes it on to jobs.
    """
    if state.limits is None or "processes" in state.limits.grouped:
        return []
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    wanted = state.limits.all_processes
    return ["prlimit", f"--nproc={wanted if allowed == resource.RLIM_INFINITY else min(wanted, allowed)}"]


def _limits(hierarchy: Path) -> bool:
    """Tell whether a hierarchy limits: some do by their name in version 1, such as `cpu,cpuacct`; the only one in 2."""
    return hierarchy == CGROUPS or not LIMITING.isdisjoint(hierarchy.name.split(","))


def group_binds(state: State, machine: str) -> list[Bind]:
    """Return what a machine sees of the cgroup hierarchies: its own group in the place of each."""
    return [Bind(group, group.parent.parent, writable=True) for group in groups_of(state, machine)]


def groups_of(state: State, machine: str) -> list[Path]:
    """Return the groups of a machine, one in each hierarchy."""
    return [path / machine for path in state.groups]


def make_groups(state: State) -> None:
    """Make a cgroup for every machine in every hierarchy, after they are on record, and set their limits."""
    state.enter("recorded")
    for parent in groups_of_cluster(state.specification.name, [state.identity], hierarchies()):
        parent.mkdir(exist_ok=True)
        _inherit(parent)
        _delegate(parent)
        for machine in state.specification.machines:
            (parent / machine).mkdir(exist_ok=True)
            _inherit(parent / machine)
    _set_limits(state)


def _set_limits(state: State) -> None:
    """Limit what the cluster and each of its machines may take, and put on record which limits the kernel took."""
    limits = limits_here(state.specification)
    memory = limits.memory_mib * 2**20
    whole = [_set(path / "memory.limit_in_bytes", memory) or _set(path / "memory.max", memory) for path in state.groups]
    for path in state.groups:
        _set(path / "pids.max", limits.all_processes)
    machines = state.specification.machines
    each = [any(_set(path / "pids.max", limits.processes) for path in groups_of(state, name)) for name in machines]
    held = {"processes": all(each), "memory": any(whole)}
    state.limits = limits.with_groups(tuple(name for name, holds in held.items() if holds))


def _set(file: Path, value: int) -> bool:
    """Set a limit; tell whether there is such a file and the kernel took the value."""
    if not file.exists():
        return False
    try:
        file.write_text(str(value), encoding="ascii")
    except OSError:
        return False
    return True


def _inherit(group: Path) -> None:
    """Give a new group of the cpuset hierarchy what its parent has: it begins empty, and nothing could run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists() and (group.parent / name).exists():
            (group / name).write_text((group.parent / name).read_text(encoding="ascii"), encoding="ascii")


def _delegate(group: Path) -> None:
    """Let the groups below one of version 2 limit processors and processes, where this machine's root group does."""
    control = group / "cgroup.subtree_control"
    for controller in ("+cpu", "+pids") if control.exists() else ():
        with contextlib.suppress(OSError):  # not delegated here: `status` and `slow-node` say what cannot be had
            control.write_text(controller)


def limit_processors(state: State, machine: str, quota: float | None) -> None:
    """Limit the processors of a machine to a share of one CPU, or lift the limit.

    Raises:
        ClusterError: This machine's cgroups cannot do that.
    """
    period = 100_000
    for group in groups_of(state, machine):
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else int(quota * period)))
            return
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("max" if quota is None else f"{int(quota * period)} {period}")
            return
    raise ClusterError("this machine has no cgroup hierarchy with the cpu controller, so no processor can be limited")


def clear_groups(state: State, machine: str) -> None:
    """Remove what jobs left in the cgroups of a machine that has died."""
    for group in groups_of(state, machine):
        for child in group.iterdir():
            if child.is_dir():
                remove_group(child)


def remove_group(path: Path) -> None:
    """Remove a group and those below it, as far as nothing runs in them."""
    for child in path.iterdir():
        if child.is_dir():
            remove_group(child)
    try:
        path.rmdir()
    except OSError:
        return  # still in use: the caller tries again
