"""Limits of a cluster hold by cgroups of either version, and by other means where no cgroup can be had."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from srunbook.cluster import Specification, State, _cgroups, _host
from srunbook.cluster._host import Limits, choose_limits


@pytest.mark.parametrize(
    ("nodes", "memory", "machine", "processors", "limits"),
    [
        (4, "64G", 24_000, 2, Limits(4096, 16384, 19200, 2400)),
        (1, "512M", 24_000, 2, Limits(4096, 12288, 19200, 256)),
        (16, "64G", 24_000, 16, Limits(4096, 16384, 19200, 600)),
        (64, "64G", 8_000, 64, Limits(16384, 16384, 6400, 64)),
    ],
    ids=["the-default", "a-node-that-claims-little", "many-nodes", "many-processors"],
)
def test_limits_follow_from_the_machine(nodes, memory, machine, processors, limits):
    """All nodes together get four fifths of the memory, and each shares half of its part between processes."""
    specification = Specification(nodes=nodes, memory=memory)

    assert choose_limits(specification, memory_mib=machine, processors=processors) == limits


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for the cgroups of a machine; it has none yet."""
    folder = tmp_path / "cgroups"
    folder.mkdir()
    monkeypatch.setattr(_host, "CGROUPS", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(0o700)
    return folder


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

    assert made.limits.grouped == ("processes", "memory")
    assert (group / "memory.max").read_text() == str(800 * 2**20)
    assert (group / "node1" / "pids.max").read_text() == str(made.limits.processes)
    assert _cgroups.limiting_groups(made, "node1") == [group / "node1"]
    assert _cgroups.limiting_command(made) == []


def test_without_cgroups_each_user_has_a_limit(cgroups, monkeypatch):
    """Where no cgroup can be written, commands get a limit of processes, at most the one that this process has."""
    made = state()
    _cgroups.make_groups(made)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (50, 100))

    assert made.limits.grouped == ()
    assert made.groups == []
    assert _cgroups.limiting_command(made) == ["prlimit", "--nproc=100"]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert _cgroups.limiting_command(made) == ["prlimit", f"--nproc={made.limits.all_processes}"]


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
