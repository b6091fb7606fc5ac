"""SVGD on the real Slurm: wide jobs, and the network.

`pytest tests/cluster/test_svgd.py --record` writes the recordings anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.proof import job_run
from support.published import boot, cluster_name, stage, submit, verify

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import Specification, State, faults

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "slurm" / "svgd"
INTERFACE = ROOT / "examples" / "svgd" / "which_interface.py"
SLOW = ROOT / "examples" / "failures" / "svgd-slow-network" / "broken.sbatch"
OWN = re.compile(r"rank \d+/\d+ (?:start|end)|particles on|step \d+ of| \+- ").search
"""What the program prints. Between its lines, XLA and gloo warn of slow operations, as often as the machine is slow."""

RATE = Mask(r"[\d.]+ (s|MB|Mbit/s)\b", r"<n> \1", "how fast the link is")


# Wide jobs -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide(generation: str, pytestconfig: pytest.Config) -> Iterator[State]:
    """Start a cluster of sixteen nodes of 32 CPUs."""
    name = cluster_name(pytestconfig, "wide", generation)
    cluster.down(name)
    state = boot(Specification(name=name, slurm=generation, nodes=16, cpus=32, memory="256G", gpus_per_node=0))
    yield state
    cluster.down(name)


WIDE = {"slurm_multinode_advanced": (), "large_scale": ("--steps=3", "--every=1")}
"""Scripts for eight and sixteen nodes, and what they get here: with 512 devices on two cores a step takes long."""


@pytest.mark.full  # 128 devices and more on two cores take minutes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", WIDE)
def test_many_nodes(name: str, wide: State, recorded: Callable[..., None]) -> None:
    """A script for many nodes completes unmodified on them, `verify` hears of every rank, and prints the recording."""
    script = SCRIPTS / f"{name}.sbatch"
    folder = stage(wide, script)
    job = submit(wide, script, WIDE[name], folder=folder)

    assert verify(wide, job.identity, folder).returncode == 0, job.output
    recorded(script, job_run(wide, script, job, WIDE[name]), keep=OWN)


def test_slurm_takes_the_wide_scripts(wide: State) -> None:
    """On sixteen nodes of 32 CPUs Slurm would take every script of the guide that asks for no GPUs."""
    scripts = sorted({*SCRIPTS.glob("*.sbatch")} - {*SCRIPTS.glob("*_gpu.sbatch")})
    folder = stage(wide, scripts[0], extra=scripts[1:])
    for script in scripts:
        asked = cluster.capture(wide, ["sbatch", "--test-only", script.name], folder=folder)

        assert asked.returncode == 0, f"{script.name}: {asked.stderr}"


# The network ---------------------------------------------------------------------------------------------------------


def test_slow_network_is_seen(healed: State, recorded: Callable[..., None]) -> None:
    """Where one of two links is slow, the program names the interface and its rate, whatever NCCL's variable says."""
    faults.link(healed, "50mbit", ["node2"])
    folder = cluster.stage(healed, SLOW, extra=[INTERFACE])
    job = cluster.submit(healed, SLOW, options=["--nodelist=node1,node2"], folder=folder)
    seen = re.findall(r"(node\d): (\w+) sent \S+ MB in \S+ s, (\d+) Mbit/s, NCCL_SOCKET_IFNAME is ib0", job.output)

    assert job.state == "COMPLETED", job.output
    assert {(host, interface) for host, interface, _ in seen} == {("node1", "eth0"), ("node2", "eth0")}
    assert all(0 < int(rate) <= 60 for *_, rate in seen), seen
    recorded(SLOW, job_run(healed, SLOW, job), keep=re.compile("eth0 sent").search, masks=[RATE])
