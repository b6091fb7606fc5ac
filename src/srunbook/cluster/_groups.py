"""The cgroups of a cluster: one for each of its machines, in every hierarchy that Slurm or a fault uses."""

from __future__ import annotations

import contextlib
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._host import CGROUPS, hierarchies
from srunbook.cluster._scripts import Bind
from srunbook.cluster._state import State


def limiting_groups(state: State, machine: str) -> list[Path]:
    """Return the groups that limit the processors of a machine; its commands join them."""
    return [path for path in groups_of(state, machine) if _limits_processors(path.parent.parent)]


def _limits_processors(hierarchy: Path) -> bool:
    """Tell whether a hierarchy limits processors: `cpu` or `cpu,cpuacct` in version 1, the only one in 2."""
    return "cpu" in hierarchy.name.split(",") or hierarchy == CGROUPS


def group_binds(state: State, machine: str) -> list[Bind]:
    """Return what a machine sees of the cgroup hierarchies: its own group in the place of each."""
    group = Path(f"srunbook-{state.identity}") / machine
    return [Bind(hierarchy / group, hierarchy, writable=True) for hierarchy in hierarchies()]


def groups_of(state: State, machine: str) -> list[Path]:
    """Return the groups of a machine, one in each hierarchy."""
    return [Path(path) / machine for path in state.groups]


def make_groups(state: State) -> None:
    """Make a cgroup for every machine in every hierarchy, after they are on record."""
    state.groups = [str(hierarchy / f"srunbook-{state.identity}") for hierarchy in hierarchies()]
    state.enter("recorded")
    for path in state.groups:
        parent = Path(path)
        parent.mkdir(exist_ok=True)
        _inherit(parent)
        _delegate(parent)
        for machine in state.specification.machines:
            (parent / machine).mkdir(exist_ok=True)
            _inherit(parent / machine)


def _inherit(group: Path) -> None:
    """Give a new group of the cpuset hierarchy what its parent has: it begins empty, and nothing could run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists() and (group.parent / name).exists():
            (group / name).write_text((group.parent / name).read_text(encoding="ascii"), encoding="ascii")


def _delegate(group: Path) -> None:
    """Let the groups below one of version 2 limit processors, where this machine's root group does."""
    control = group / "cgroup.subtree_control"
    if control.exists():
        with contextlib.suppress(OSError):  # not delegated here: then only `slow-node` cannot be had, and says so
            control.write_text("+cpu")


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
