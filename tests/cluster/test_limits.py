"""What users of a node cannot take: processes, files in memory and memory have limits, and `status` states them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from support.published import cluster_name

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import Specification, State, _host

MEMORY_MIB = 1024
"""Memory of the whole cluster in these tests: less than this machine has, so that they can exhaust it."""

THREADS = """
import threading
end = threading.Event()
started = 0
try:
    while started < {most}:
        threading.Thread(target=end.wait).start()
        started += 1
except RuntimeError as error:
    print(error)
end.set()
print(started)
"""


@pytest.fixture(scope="module")
def small(pytestconfig: pytest.Config, generation: str) -> Iterator[State]:
    """Boot a cluster of one node that may take little, by a process with a strict umask."""
    name = cluster_name(pytestconfig, "small", generation)
    cluster.down(name)
    with pytest.MonkeyPatch.context() as patch:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        patch.setattr(_host, "MEMORY_SHARE", MEMORY_MIB * 2**20 / machine)
        patch.setattr(_host, "PROCESSES", 300)
        before = os.umask(0o077)
        try:
            state = cluster.up(Specification(name=name, slurm=generation, nodes=1))
        finally:
            os.umask(before)
        yield state
    cluster.down(name)


def test_a_user_cannot_start_processes_without_end(small):
    """On a node no thread or process starts beyond the limit; afterwards the node works as before."""
    most = small.limits.processes
    result = cluster.capture(small, ["srun", "python3", "-c", THREADS.format(most=most + 100)])
    assert "processes" in small.limits.enforced, "this machine has no writable cgroup with the pids controller"
    said, started = result.stdout.splitlines()

    assert said == "can't start new thread"
    assert most - 50 < int(started) < most
    assert cluster.capture(small, ["srun", "hostname"]).stdout == "node1\n"


@pytest.mark.parametrize("folder", ["/dev/shm", "/var/tmp"])
def test_files_in_memory_have_a_limit(small, folder):
    """A file in memory ends at half of the node's share of the memory."""
    write = f"dd if=/dev/zero of={folder}/x bs=1M count=600; stat -c %s {folder}/x; rm {folder}/x"
    result = cluster.capture(small, ["srun", "bash", "-c", write])

    assert "No space left on device" in result.stderr
    assert abs(int(result.stdout) / 2**20 - MEMORY_MIB / 2) <= 2


def test_the_whole_cluster_has_a_limit_on_memory(small):
    """A job that takes more than the cluster may have is killed, whatever it asked for; the cluster works on."""
    hog = f"x = b'x' * {2 * MEMORY_MIB * 2**20}; print(len(x))"
    result = cluster.capture(small, ["srun", "python3", "-c", hog])

    assert "memory" in small.limits.enforced, "this machine has no writable cgroup with the memory controller"
    assert result.returncode != 0
    assert result.stdout == ""
    assert "Out Of Memory" in result.stderr or "oom-kill" in result.stderr
    assert cluster.capture(small, ["srun", "hostname"]).stdout == "node1\n"


def test_status_states_the_limits(small):
    """`status` says what the cluster may take of the machine."""
    result = CliRunner().invoke(cli, ["status", "--name", small.specification.name])

    assert result.output.splitlines()[2:6] == [
        f"CPUs: {len(os.sched_getaffinity(0))}, which all nodes share",
        "memory: 1.0 GiB for the whole cluster",
        f"processes: {small.limits.processes} on each node",
        "files in memory: 0.5 GiB in /dev/shm of each node, and as much in /tmp",
    ]


def test_a_strict_umask_does_not_reach_the_nodes(small):
    """Ordinary users read the configuration and write where everybody may, whatever the umask of root was."""
    command = "cat /etc/slurm/slurm.conf /etc/hosts >/dev/null && touch /dev/shm/a /tmp/b /scratch/c && id -un"
    result = cluster.capture(small, ["srun", "bash", "-c", command])

    assert (result.stdout, result.stderr) == (f"{cluster.USER}\n", "")
