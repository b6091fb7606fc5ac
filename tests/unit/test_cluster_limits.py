"""Limits of a cluster follow from the machine, and hold by cgroups of either version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srunbook.cluster import Specification, State, _cgroups, _host
from srunbook.cluster._host import Limits, limits_here


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for the cgroups of a machine; it has none yet."""
    folder = tmp_path / "cgroups"
    folder.mkdir()
    monkeypatch.setattr(_host, "CGROUPS", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o700)
    return folder


@pytest.mark.parametrize(
    ("nodes", "memory", "machine", "processors", "limits"),
    [
        (4, "64G", 24_000, 2, Limits(4096, 19200, 2400)),
        (1, "512M", 24_000, 2, Limits(4096, 19200, 256)),
        (64, "64G", 8_000, 64, Limits(16384, 6400, 64)),
    ],
)
def test_limits_follow_from_the_machine(cgroups, monkeypatch, nodes, memory, machine, processors, limits):
    """All nodes together get four fifths of the memory, and each shares half of its part between processes."""
    sizes = {"SC_PHYS_PAGES": machine, "SC_PAGE_SIZE": 2**20}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)

    assert limits_here(Specification(nodes=nodes, memory=memory)) == limits


def state() -> State:
    """Return the record of a cluster of one node, in a folder of its own."""
    made = State(Specification(name="limited", nodes=1))
    made.folder.mkdir(parents=True)
    for folder in (made.folder, *made.folder.parents[:2]):
        folder.chmod(0o700)
    return made


def test_groups_of_version_2_limit_each_machine_and_the_cluster(cgroups):
    """With the controllers of version 2, each machine has its limit of processes, and all have one of memory."""
    made = state()
    group = cgroups / f"srunbook-limited-{made.identity}"
    for folder in (cgroups, group, *(group / name for name in ("ctl", "login", "node1"))):
        folder.mkdir(exist_ok=True)
        for name in ("cgroup.controllers", "cgroup.procs", "cgroup.subtree_control", "pids.max", "memory.max"):
            (folder / name).write_text("max")
    (cgroups / "memory.max").write_text(str(1000 * 2**20))  # a container's
    _cgroups.make_groups(made)

    assert made.limits.enforced == ("processes", "memory")
    assert (group / "memory.max").read_text() == str(800 * 2**20)
    assert (group / "node1" / "pids.max").read_text() == str(made.limits.processes)
    assert _cgroups.limiting_groups(made, "node1") == [group / "node1"]


def test_groups_that_cannot_be_written_are_none(cgroups, monkeypatch):
    """Hierarchies that a container shows read-only are left alone."""
    (cgroups / "cgroup.controllers").touch()
    for name in _host.V1_CONTROLLERS:
        (cgroups / name).mkdir()
        (cgroups / name / "cgroup.procs").touch()
        (cgroups / name / "tasks").touch()
    assert len(_host.hierarchies()) == len(_host.V1_CONTROLLERS)
    monkeypatch.setattr("os.access", lambda *_: False)

    assert not _host.has_cgroup_v1()
    assert _host.hierarchies() == []
