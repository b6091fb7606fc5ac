"""The cgroups of a cluster: one for each of its machines in every hierarchy, with their limits."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._host import limits_here
from srunbook.cluster._scripts import Bind
from srunbook.cluster._state import State, groups_of_cluster

LIMITING = {"cpu", "memory", "pids"}
"""Controllers of version 1 whose groups the commands of a machine join; the other ones are left to Slurm."""


def groups_of(state: State, machine: str) -> list[Path]:
    """Return the groups of a machine, one in each hierarchy."""
    return [path / machine for path in state.groups]


def group_binds(state: State, machine: str) -> list[Bind]:
    """Return what a machine sees of the cgroup hierarchies: its own group instead of each."""
    return [Bind(group, group.parent.parent, writable=True) for group in groups_of(state, machine)]


def limiting_groups(state: State, machine: str) -> list[Path]:
    """Return the groups that limit a machine, which its commands join: all in version 2, some by name in version 1."""
    hierarchies = {path: path.parent.parent for path in groups_of(state, machine)}
    return [
        path
        for path, hierarchy in hierarchies.items()
        if (hierarchy / "cgroup.controllers").exists() or not LIMITING.isdisjoint(hierarchy.name.split(","))
    ]


def make_groups(state: State) -> None:
    """Make the groups, after they are on record, and put on record which limits the kernel took."""
    state.enter("recorded")
    machines = state.specification.machines
    for parent in groups_of_cluster(state.specification.name, [state.identity]):
        for group in (parent, *(parent / machine for machine in machines)):
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # of version 1, which begin empty: nothing could run there
                if (group / name).exists() and (group.parent / name).exists():
                    (group / name).write_text((group.parent / name).read_text(encoding="ascii"), encoding="ascii")
            control = group / "cgroup.subtree_control"
            for controller in ("+cpu", "+pids") if group == parent and control.exists() else ():
                with contextlib.suppress(OSError):  # not delegated here: `status` and `slow-node` say what is missing
                    control.write_text(controller)
    limits = limits_here(state.specification)
    memory = limits.memory_mib * 2**20
    whole = [_set(path / "memory.limit_in_bytes", memory) or _set(path / "memory.max", memory) for path in state.groups]
    each = [any(_set(path / "pids.max", limits.processes) for path in groups_of(state, name)) for name in machines]
    held = {"processes": all(each), "memory": any(whole)}
    state.limits = replace(limits, enforced=tuple(name for name, holds in held.items() if holds))


def _set(file: Path, value: int) -> bool:
    """Set a limit; return whether there is such a file and the kernel took the value."""
    if not file.exists():
        return False
    try:
        file.write_text(str(value), encoding="ascii")
    except OSError:
        return False
    return True


def limit_processors(state: State, machine: str, quota: float | None) -> None:
    """Limit the processors of a machine to a share of one CPU, or lift the limit."""
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
    with contextlib.suppress(OSError):  # still in use: the caller tries again
        path.rmdir()
