"""A cluster from a file: the real Slurm has its nodes, partitions, limits and accounts, and acts upon them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.published import boot, cluster_name

from srunbook import cluster
from srunbook.cluster import ClusterError, Specification, State, read_specification

ROOT = Path(__file__).resolve().parents[2]
COMPLETE = ROOT / "examples" / "clusters" / "complete.yaml"


@pytest.fixture(scope="module")
def site(generation: str, pytestconfig: pytest.Config) -> Iterator[State]:
    """Boot the complete example, on a generation."""
    name = cluster_name(pytestconfig, "site", generation)
    cluster.down(name)
    yield boot(read_specification(COMPLETE, {"name": name, "slurm": generation}))
    cluster.down(name)


@pytest.fixture
def said(site: State) -> Callable[..., str]:
    """Run a command as a user and return all that it said."""

    def run(*command: str, user: str | None = "alice") -> str:
        result = cluster.capture(site, command, user=user)
        return result.stdout + result.stderr

    return run


def test_slurm_has_the_nodes_of_the_file(said: Callable[..., str]) -> None:
    """Groups differ in CPUs, memory, types of GPUs and features; partitions have the nodes and limits they name."""
    lines = said("sinfo", "--noheader", "--Node", "--format=%N %P %c %m %G %f %l").splitlines()

    assert "node1 batch* 32 262144 gpu:a100:4 a100,ib 1-00:00:00" in lines
    assert "node3 debug 16 131072 gpu:l40s:2,licence:5 l40s 30:00" in lines
    assert len(lines) == 3 + 1 + 3
    assert "MaxArraySize            = 2002" in said("scontrol", "show", "config")


def test_limits_hold(said: Callable[..., str]) -> None:
    """Slurm refuses what a limit of the file forbids, in its own words, and starts what it allows."""
    short = ("srun", "--qos=short", "--time=10")

    assert "QOSMaxGRESPerUser" in said(*short, "--gres=gpu:a100:3", "true")
    assert said(*short, "--gres=gpu:l40s:2", "hostname") == "node3\n"
    assert "Invalid account" in said("srun", "--account=physics", "true", user="carol")
    assert said("srun", "--partition=debug", "id", "-un", user="carol") == "carol\n"
    assert "time limit" in said("srun", "--partition=debug", "--time=31", "true").lower()


def test_each_job_has_a_folder_of_its_own(site: State, until: Callable[..., object], said: Callable[..., str]) -> None:
    """The prolog makes SLURM_TMPDIR as root, the job owns it, and some time after its end the epilog removes it."""
    owner, folder = said("srun", "-wnode1", "bash", "-c", 'stat -c %U "$SLURM_TMPDIR"; echo "$SLURM_TMPDIR"').split()

    assert (owner, folder.startswith("/tmp/job-")) == ("alice", True)
    assert "JAX_NUM_CPU_DEVICES" in said("srun", "env")
    until(lambda: cluster.capture(site, ["ls", "-d", folder], user=None, machine="node1").returncode != 0)


def test_jobs_find_modules_and_mounts(said: Callable[..., str]) -> None:
    """A module and a folder of the host are there on every node."""
    words = said("srun", "-N3", "bash", "-lc", "module load cuda/12.4; echo $CUDA_HOME; ls /shared")

    assert [words.count(word) for word in ("/usr/local/cuda-12.4", "complete.yaml")] == [3, 3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"slurm.conf": "SelectType=select/nonsense"}, "error: .*nonsense"),
        ({"cgroup.conf": "AllowedRAMSpase=90"}, "Slurm refuses the configuration.*unrecognized key: AllowedRAMSpase"),
        ({"partitions": "PartitionName=a\nPartitionName=b MaxTme=1"}, 'slurm.conf line [0-9]+: " MaxTme=1"'),
        ({"sacctmgr": "add account a\nadd account b Nonsense=1"}, "Nonsense.*line 2: add account b Nonsense=1"),
        ({"nodes": {"a": {"count": 1}, "b": {"count": 1}}, "partitions": "PartitionName=x Nodes=a"}, "contains node2"),
    ],
    ids=["slurm.conf", "cgroup.conf", "partitions", "sacctmgr", "no-partition"],
)
def test_what_slurm_refuses(pytestconfig: pytest.Config, generation: str, settings: dict[str, Any], words: str) -> None:
    """A cluster with a setting that Slurm does not take ends with Slurm's words, and nothing is left."""
    name = cluster_name(pytestconfig, "refused")
    with pytest.raises(ClusterError, match=f"(?s){words}"):
        cluster.up(Specification(**{"name": name, "slurm": generation, "nodes": 1, **settings}))

    assert cluster.read_state(name) is None


OWN = {
    "nodes": 1,
    "cpus": 4,
    "gpus_per_node": 0,
    "users": ["a.b", "alice"],
    "partitions": "PartitionName=dxp@a100 Default=YES MaxTime=1-00",
    "slurm.conf": "PreemptType=preempt/qos",
    "sacctmgr": """\
# a comment, and names that sites have
add qos low PreemptMode=requeue GraceTime=3
add qos high Preempt=low MaxWall=10 Flags=DenyOnLimit
add account x/y QOS=normal,low,high
add user a.b,alice account=x/y
""",
    "cgroup.conf": "AllowedRAMSpace=90",
}


@pytest.fixture(scope="module")
def preempting(pytestconfig: pytest.Config, generation: str) -> Iterator[State]:
    """Boot a cluster whose QOS preempt each other."""
    name = cluster_name(pytestconfig, "preempt", generation)
    cluster.down(name)
    yield boot(Specification(**{**OWN, "name": name, "slurm": generation}))
    cluster.down(name)


def test_own_lines_hold(preempting: State) -> None:
    """Nodes may be a number: Slurm's own lines hold all the same, whatever names they have, and limits are enforced."""
    run = partial(cluster.capture, preempting)
    qos = run(
        ["sacctmgr", "-nP", "show", "qos", "low,high", "format=name,preempt,preemptmode,gracetime"]
    ).stdout.split()
    said = {
        option: run(["srun", *option.split(), "id", "-un"], user="a.b") for option in ("-qhigh", "-qno", "-qhigh -t11")
    }

    assert qos == ["high|low|cluster|00:00:00", "low||requeue|00:00:03"]
    assert said["-qhigh"].stdout == "a.b\n", said
    assert "Invalid qos" in said["-qno"].stderr
    assert "QOSMaxWallDurationPerJobLimit" in said["-qhigh -t11"].stderr
    if preempting.plugins["cgroup"] != "disabled":
        assert "AllowedRAMSpace         = 90.0%" in run(["scontrol", "show", "config"]).stdout


@pytest.mark.full
def test_packages_are_on_every_machine(pytestconfig: pytest.Config, generation: str) -> None:
    """A root with more packages is made once, and a job on a node finds the program and its own Python."""
    name = cluster_name(pytestconfig, "packages", generation)
    cluster.down(name)
    state = boot(Specification(name=name, slurm=generation, nodes=2, packages=["git", "python3"]))
    try:
        done = cluster.capture(state, ["srun", "-N2", "sh", "-c", "git --version && python3 --version"])
        assert done.stdout.count("git version") == 2, done.stderr
        assert done.stdout.count("Python 3") == 2
        assert "git" in state.root["versions"]
    finally:
        cluster.down(name)
