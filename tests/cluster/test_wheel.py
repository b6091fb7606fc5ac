"""The wheel boots a cluster from an empty folder, without a checkout."""

from __future__ import annotations

import pytest
from support.published import cluster_name
from support.wheel import Installed

from srunbook import cluster


@pytest.mark.full  # installs and boots for half a minute what other tests take from the checkout
def test_cluster_from_the_wheel(wheel, generation, pytestconfig, tmp_path):
    """`srunbook cluster` of the wheel boots two nodes, runs a command on both, and takes them down."""
    name = cluster_name(pytestconfig, "wheel")
    installed = Installed(tmp_path, str(wheel))
    try:
        up = installed.run("srunbook", "cluster", "up", "--name", name, "--slurm", generation, "--nodes", "2")
        ran = installed.run("srunbook", "cluster", "exec", "--name", name, "--", "srun", "-N2", "hostname")
        down = installed.run("srunbook", "cluster", "down", "--name", name)
    finally:
        cluster.down(name)

    assert (up.returncode, down.returncode) == (0, 0), up.stderr + down.stderr
    assert sorted(ran.stdout.split()) == ["node1", "node2"], ran.stderr
    assert not [*installed.here.iterdir()]
