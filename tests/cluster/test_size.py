"""Clusters of many nodes: all of them can talk to each other, as far as the largest that can be had."""

from __future__ import annotations

import pytest
from support.published import cluster_name
from support.traces import adopting_orphans, traces

from srunbook import cluster
from srunbook.cluster import Specification

HEARING = """\
import os, pathlib, socket, time
nodes = [f"node{number + 1}" for number in range(int(os.environ["SLURM_NNODES"]))]
mine, heard = socket.socket(type=socket.SOCK_DGRAM), set()
mine.bind(("", 29400))
pathlib.Path("ready", os.environ["SLURMD_NODENAME"]).touch()
while len(os.listdir("ready")) < len(nodes):
    time.sleep(0.1)
for node in nodes:
    mine.sendto(os.environ["SLURMD_NODENAME"].encode(), (node, 29400))
mine.settimeout(600)
try:
    while len(heard) < len(nodes):
        heard.add(mine.recv(100))
except TimeoutError:
    pass
print(len(heard))
"""
"""Each node sends one datagram to every node and counts those from which one arrives."""


@pytest.fixture
def no_trace(pytestconfig):
    """Compare what clusters of this worker have on the host before and after a test."""
    with adopting_orphans():
        before = traces(cluster_name(pytestconfig, "size"))
        yield
        after = traces(cluster_name(pytestconfig, "size"))
    assert {kind: after[kind] - before[kind] for kind in before if after[kind] - before[kind]} == {}


@pytest.mark.alone
def test_every_node_reaches_every_other(pytestconfig, no_trace):
    """Each of 64 nodes hears from all of them, which is more addresses than the kernel learns; `down` ends all."""
    name = cluster_name(pytestconfig, "size")
    state = cluster.up(Specification(name=name, slurm="22.05", nodes=64))
    try:
        program = f"mkdir ready; srun --nodes=64 python -c '{HEARING}'"
        heard = cluster.capture(state, ["bash", "-lc", f"module load python; {program}"])
    finally:
        cluster.down(name)

    assert heard.stdout.split() == ["64"] * 64, heard.stderr


@pytest.mark.full
@pytest.mark.parametrize("generation", cluster.GENERATIONS)
def test_largest_cluster(pytestconfig, no_trace, generation):
    """A task runs on each of 256 nodes."""
    name = cluster_name(pytestconfig, "size")
    state = cluster.up(Specification(name=name, slurm=generation, nodes=256))
    try:
        names = cluster.capture(state, ["srun", "--nodes=256", "hostname"])
    finally:
        cluster.down(name)

    assert sorted(names.stdout.split()) == sorted(state.specification.node_names), names.stderr
