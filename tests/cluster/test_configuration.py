"""A cluster from a file: the real Slurm has its nodes, partitions, limits and accounts, and acts upon them."""

from __future__ import annotations

import re
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.published import boot, cluster_name

from srunbook import cluster
from srunbook.cluster import ClusterError, Specification, SpecificationError, State, read_specification

ROOT = Path(__file__).resolve().parents[2]
COMPLETE = ROOT / "examples" / "clusters" / "complete.yaml"
SMALL = ROOT / "examples" / "clusters" / "small.yaml"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a second Python environment, with a module that no other has."""
    folder = tmp_path_factory.mktemp("environment", numbered=True) / "second"
    venv.create(folder, symlinks=True)
    library = next(folder.glob("lib/python*/site-packages"))
    (library / "only_here.py").write_text("print('second environment')\n", encoding="utf-8")
    for place in (folder, *list(folder.parents)[:3]):
        place.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def wanted(generation: str, pytestconfig: pytest.Config, environment: Path) -> Specification:
    """Return the complete example, on a generation, with a Python environment more."""
    options: dict[str, Any] = {"name": cluster_name(pytestconfig, "site", generation), "slurm": generation}
    return read_specification(COMPLETE, {**options, "environments": {"second": str(environment)}})


@pytest.fixture(scope="module")
def site(wanted: Specification) -> Iterator[State]:
    """Boot it."""
    cluster.down(wanted.name)
    yield boot(wanted)
    cluster.down(wanted.name)


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
    partition = said("scontrol", "show", "partition", "scavenger")
    assert all(word in partition for word in ("GraceTime=20", "PreemptMode=REQUEUE", "Nodes=node[1-3]"))
    configuration = said("scontrol", "show", "config")
    assert "MaxArraySize            = 2002" in configuration
    assert "send_user_signal" in configuration


def test_accounting_has_the_accounts_of_the_file(said: Callable[..., str]) -> None:
    """QOS, accounts with parents, users and their defaults are in accounting."""
    form = "format=account,user,parentname,qos"
    associations = said("sacctmgr", "--noheader", "--parsable2", "show", "assoc", form).splitlines()
    qos = said("sacctmgr", "-nP", "show", "qos", "short", "format=name,priority,maxwall,maxtrespu,flags").strip()

    assert "optics||physics|normal" in associations
    assert "optics|carol||normal" in associations
    assert "physics|alice||normal,short" in associations
    assert not any(line.startswith("physics|carol") for line in associations)
    assert qos == "short|100|00:30:00|gres/gpu=2|DenyOnLimit"


def test_limits_hold(said: Callable[..., str]) -> None:
    """Slurm refuses what a limit of the file forbids, in its own words, and starts what it allows."""
    short = ("srun", "--qos=short", "--time=10")

    assert "QOSMaxGRESPerUser" in said(*short, "--gres=gpu:a100:3", "true")
    assert said(*short, "--gres=gpu:l40s:2", "hostname") == "node3\n"
    assert "Invalid account" in said("srun", "--account=physics", "true", user="carol")
    assert said("srun", "--partition=debug", "id", "-un", user="carol") == "carol\n"
    assert "time limit" in said("srun", "--partition=debug", "--time=31", "true").lower()


def test_each_job_has_a_folder_of_its_own(site: State, said: Callable[..., str]) -> None:
    """The prolog makes SLURM_TMPDIR as root, the job owns it, and the epilog removes it."""
    owner, folder = said("srun", "-wnode1", "bash", "-c", 'stat -c %U "$SLURM_TMPDIR"; echo "$SLURM_TMPDIR"').split()

    assert (owner, folder.startswith("/tmp/job-")) == ("alice", True)
    assert "JAX_NUM_CPU_DEVICES" in said("srun", "env")


def test_the_epilog_removes_it(site: State, until: Callable[..., object], said: Callable[..., str]) -> None:
    """Some time after the end of a job its folder is gone."""
    folder = said("srun", "-wnode2", "bash", "-c", 'echo "$SLURM_TMPDIR"').strip()

    until(lambda: cluster.capture(site, ["ls", "-d", folder], user=None, machine="node2").returncode != 0)


def test_what_is_installed_later_is_on_all_nodes(said: Callable[..., str], environment: Path) -> None:
    """What is installed into a Python environment of the host while the cluster is up is seen on every node at once."""
    run = ("srun", "-N3", "second/bin/python", "-c", "import only_later")
    before = said(*run)
    library = next(environment.glob("lib/python*/site-packages"))
    (library / "only_later.py").write_text("print('installed later')\n", encoding="utf-8")
    after = said(*run)

    assert "No module named 'only_later'" in before
    assert after.splitlines().count("installed later") == 3


def test_jobs_find_modules_mounts_and_environments(said: Callable[..., str]) -> None:
    """A module, a folder of the host and a second Python environment are there on every node."""
    shell = "module load cuda/12.4; echo $CUDA_HOME; ls /shared; ~/second/bin/python -c 'import only_here'"
    words = said("srun", "-N3", "bash", "-lc", shell)

    assert [words.count(word) for word in ("/usr/local/cuda-12.4", "complete.yaml", "second environment")] == [3] * 3
    assert "second environment" in said("bash", "-lc", "module load second; python -c 'import only_here'")


PREEMPTED = """\
#!/bin/bash
#SBATCH --partition=scavenger --nodelist=node1 --exclusive --signal=B:USR1@60 --time=02:00:00 --output=preempted.log
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
trap 'echo got USR1; sync' USR1
touch ready
while true; do sleep 0.1 & wait $!; done
"""


def test_a_preempted_job_gets_its_signal(
    site: State, tmp_path: Path, until: Callable[..., object], said: Callable[..., str]
) -> None:
    """A job of the lower partition gets the signal it asked for, and is requeued when its grace time is over."""
    script = tmp_path / "preempted.sbatch"
    script.write_text(PREEMPTED)
    folder = cluster.stage(site, script)
    job = said("sbatch", "--parsable", f"--chdir={folder}", f"{folder}/preempted.sbatch").strip()
    there = site.folder / folder.lstrip("/")
    until((there / "ready").exists)
    other = said("sbatch", "--parsable", "--output=/dev/null", "-wnode1", "--exclusive", "--wrap=true").strip()
    until(lambda: "got USR1" in (there / "preempted.log").read_text())

    assert cluster.await_job(site, other).state == "COMPLETED"
    assert cluster.await_job(site, job).state == "COMPLETED"
    assert re.search(r"Restarts=[12]\b", said("scontrol", "show", "job", job))  # 24.11 counts two


def with_changes(specification: Specification, **sections: Any) -> Specification:
    """Return a specification with sections changed key by key."""
    values = specification.model_dump(by_alias=True, exclude_defaults=True)
    for name, section in sections.items():
        values[name] = {**values[name], **section}
    return Specification(**values)


def test_limits_change_without_going_down(site: State, wanted: Specification, said: Callable[..., str]) -> None:
    """A partition, a QOS and an account change while a job runs; what the job needs is not taken away."""
    job = said("sbatch", "--parsable", "--time=03:00:00", "--output=/dev/null", "--wrap=sleep infinity").strip()
    said("bash", "-c", f"until squeue -hj {job} -o %T | grep -q RUNNING; do sleep 0.2; done")

    batch = wanted.partitions["batch"].model_dump(exclude_defaults=True)
    with pytest.raises(
        SpecificationError, match=rf"job {job} of alice runs in partition batch with a time limit of 3:"
    ):
        cluster.reconfigure(with_changes(wanted, partitions={"batch": {**batch, "max_time": "02:00:00"}}))
    with pytest.raises(SpecificationError, match=rf"job {job} .* with cpu=1, and qos\.normal\.max_tres_per_job is 0"):
        cluster.reconfigure(with_changes(wanted, qos={"normal": {"max_tres_per_job": {"cpu": 0}}}))
    with pytest.raises(SpecificationError, match="cpu_quota cannot change while"):
        cluster.reconfigure(wanted.model_copy(update={"cpu_quota": 0.5}))
    broken = wanted.model_copy(update={"slurm_conf": "Nonsense=1\n"})
    with pytest.raises(ClusterError, match=r"(?s)Slurm refuses the configuration.*Nonsense"):
        cluster.reconfigure(broken)
    assert "MaxArraySize            = 2002" in said("scontrol", "show", "config")

    new = with_changes(
        wanted,
        partitions={"batch": {**batch, "max_time": "06:00:00"}},
        qos={"short": {"max_wall": "00:20:00"}, "long": {"max_wall": "7-00:00:00"}},
        accounts={"chemistry": {}},
    )
    cluster.reconfigure(new)
    try:
        assert "MaxTime=06:00:00" in said("scontrol", "show", "partition", "batch")
        assert (
            said("sacctmgr", "-nP", "show", "qos", "short", "format=maxwall,maxtrespu,priority,flags")
            == "00:20:00||0|\n"
        )
        assert said("srun", "--account=chemistry", "--qos=long", "hostname").startswith("node")
        assert said("squeue", "-hj", job, "-o", "%T") == "RUNNING\n"
    finally:
        said("scancel", job)
        cluster.reconfigure(wanted)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"partitions": {"batch": {"options": {"Nodes": "node9"}}}}, "Invalid node names in partition batch"),
    ({"slurm.conf": "PriorityType=priority/none\n"}, "failed to initialize priority plugin"),
    ({"cgroup.conf": "AllowedRAMSpase=90\n"}, "unrecognized key: AllowedRAMSpase"),
    ({"gres.conf": "NodeName=node1 Kind=gpu\n"}, "unrecognized key: Kind"),
]
"""What ends a controller or a slurmd that reads it, and what it says."""


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=["nodes", "plugin", "cgroup", "gres"])
def test_a_refused_configuration_disturbs_no_job(
    site: State, wanted: Specification, said: Callable[..., str], changes: dict[str, Any], words: str
) -> None:
    """Slurm judges the files before its daemons see them: they live on, and the job and its nodes are as before."""
    job = said("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep infinity").strip()
    said("bash", "-c", f"until squeue -hj {job} -o %T | grep -q RUNNING; do sleep 0.2; done")

    def everything() -> tuple[object, ...]:
        machines = {"ctl": "slurmctld", **dict.fromkeys(wanted.node_names, "slurmd")}
        oldest = [
            cluster.capture(site, ["pgrep", "-ox", daemon], user=None, machine=machine).stdout
            for machine, daemon in machines.items()
        ]
        restarts = re.findall("Restarts=.", said("scontrol", "show", "job", job))
        files = sorted((site.folder / "etc" / "slurm").iterdir())
        return (
            oldest,
            said("squeue", "-hj", job, "-o", "%T %S %r"),
            restarts,
            said("sinfo", "-hN", "-o", "%N %E"),
            files,
        )

    before = everything()
    assert str(before[1]).startswith("RUNNING")
    try:
        values = wanted.model_dump(by_alias=True, exclude_defaults=True)
        with pytest.raises(ClusterError, match=rf"(?s)Slurm refuses the configuration.*{words}"):
            cluster.reconfigure(Specification(**{**values, **changes}))
        assert everything() == before
    finally:
        said("scancel", job)


def test_what_accounting_refuses_is_undone(site: State, wanted: Specification, said: Callable[..., str]) -> None:
    """A partition gets a QOS that is new; where sacctmgr refuses a word, early or late, nothing of it is left."""
    debug = {**wanted.partitions["debug"].model_dump(exclude_defaults=True), "qos": "limited"}
    limited = {"max_tres_per_job": {"gres/gpu:l40s": 1}, "flags": ["DenyOnLimit"]}
    nonsense = {"options": {"Nonsense": "1"}}

    def everything() -> str:
        associations = said("sacctmgr", "-nP", "show", "assoc", "format=account,user,parentname,qos,grptres")
        return (
            said("scontrol", "--oneliner", "show", "partition") + said("sacctmgr", "-nP", "show", "qos") + associations
        )

    before = everything()
    for sections in ({"qos": {"limited": nonsense}}, {"qos": {"limited": limited}, "accounts": {"physics": nonsense}}):
        with pytest.raises(ClusterError, match=r"(?s)sacctmgr refuses it.*Nonsense"):
            cluster.reconfigure(with_changes(wanted, partitions={"debug": debug}, **sections))
        assert everything() == before
    cluster.reconfigure(with_changes(wanted, partitions={"debug": debug}, qos={"limited": limited}))
    try:
        assert "QoS=limited" in said("scontrol", "show", "partition", "debug")
        assert "QOSMaxGRESPerJob" in said("srun", "--partition=debug", "--gres=gpu:l40s:2", "true")
        assert said("srun", "--partition=debug", "--gres=gpu:l40s:1", "hostname") == "node3\n"
    finally:
        cluster.reconfigure(wanted)

    assert everything() == before


def test_the_small_example(pytestconfig: pytest.Config) -> None:
    """The small example comes up: Slurm takes its nodes, and a job runs in each partition."""
    name = cluster_name(pytestconfig, "small")
    cluster.down(name)
    specification = read_specification(SMALL, {"name": name, "slurm": "22.05"})
    state = boot(specification)
    try:
        for partition in specification.partitions:
            done = cluster.capture(state, ["srun", "--mem=100M", f"--partition={partition}", "hostname"])
            assert done.stdout.strip() in specification.nodes_of(specification.partitions[partition]), done.stderr
    finally:
        cluster.down(name)


@pytest.mark.parametrize("line", ["Nonsense=1", "SelectType=select/nonsense"])
def test_a_line_that_slurm_refuses(pytestconfig: pytest.Config, line: str) -> None:
    """A cluster with a line that Slurm does not take ends with Slurm's words, and nothing is left."""
    name = cluster_name(pytestconfig, "refused")
    with pytest.raises(
        ClusterError, match=f"(?s)error: .*{line.partition('=')[2] if 'select' in line else 'Nonsense'}"
    ):
        cluster.up(Specification(**{"name": name, "slurm": "22.05", "nodes": 1, "slurm.conf": line}))

    assert cluster.read_state(name) is None
