"""Debian packages of a configuration: a root of its own has them, and they are on every machine."""

from __future__ import annotations

import pytest
from support.published import boot, cluster_name

from srunbook import cluster
from srunbook.cluster import ClusterError, Specification


@pytest.mark.full
def test_packages_are_on_every_machine(pytestconfig: pytest.Config, generation: str) -> None:
    """A root with more packages is made once, and a job on a node finds the program and its own Python."""
    name = cluster_name(pytestconfig, "packages", generation)
    cluster.down(name)
    wanted = {"name": name, "slurm": generation, "nodes": 2, "packages": ["git", "python3"]}
    state = boot(Specification(**wanted))
    try:
        shell = "git --version && git init --quiet there && git -C there status --short && python3 --version"
        done = cluster.capture(state, ["srun", "-N2", "--chdir=/tmp", "sh", "-c", shell])
        assert done.stdout.count("git version") == 2, done.stderr
        assert done.stdout.count("Python 3") == 2
        assert "git" in state.root["versions"]
        with pytest.raises(ClusterError, match="is up with other settings"):
            cluster.up(Specification(**{**wanted, "packages": []}))
    finally:
        cluster.down(name)
