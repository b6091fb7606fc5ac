"""Rendered scripts on a real Slurm: what sbatch says to many, and what becomes of a few."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.generated_jobs import Capacity, generated
from support.proof import job_run
from support.published import boot, cluster_name, verify

from srunbook import cluster, generate, sites
from srunbook.cluster import Specification, State, read_specification
from srunbook.generate import Layer

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS = sorted((ROOT / "examples" / "slurm_configs").glob("*.yaml"))

THERE = Capacity(
    nodes=8,
    cpus=72,
    gpus=8,
    memory=1024 << 20,
    words={
        "partition": ("batch", "debug", "preempt", "compute"),
        "account": ("research",),
        "constraint": ("a100", "gpu-bw"),
        "gpu": ("a100",),
    },
    wrong=0,
)
"""What the cluster of the fixture `site` has."""

HOSTILE = ["a b", "it's", '"', "\\", "$HOME", "$(touch owned)", "`touch owned`", "*", "#SBATCH --nodes=99", "日本", ""]
"""Few, so that what shows them is one short line of the log."""

SHOW = """\
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "HOSTILE")
sys.stdout.write(json.dumps([sys.argv[1:], {name: os.environ[name] for name in names}]) + "\\n")
"""
"""A program that shows what it got."""


def rendered(**values: Any) -> str:
    """Render the script of a job."""
    return generate.render(generate.specify(Layer("here", values)).specification)


def write_profiles(folder: Path, **values: Any) -> None:
    """Write a script of each size and framework."""
    for profile in generate.PROFILES:
        for framework in ("jax", "torchrun", "lightning"):
            text = rendered(profile=profile, framework=framework, script="train.py", **values)
            (folder / f"{profile}-{framework}.sbatch").write_text(text, encoding="utf-8")


def refused_by_slurm(state: State, folder: Path) -> str:
    """Return what `sbatch --test-only` refuses of the scripts in a folder."""
    first, *others = sorted(folder.glob("*.sbatch"))
    there = cluster.stage(state, first, extra=others)
    loop = 'for script in *.sbatch; do sbatch --test-only "$script" >said 2>&1 || { echo "$script"; cat said; }; done'
    result = cluster.capture(state, ["bash", "-c", loop], folder=there)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def site(slurm: State) -> Iterator[State]:
    """Boot a cluster that claims what the examples ask for, with the partition that they name."""
    name = f"{slurm.specification.name}-site"
    cluster.down(name)
    state = boot(
        Specification(
            name=name,
            slurm=slurm.specification.slurm,
            nodes=THERE.nodes,
            cpus=THERE.cpus,
            memory="1024G",
            gpus_per_node=THERE.gpus,
            features=THERE.words["constraint"],
        )
    )
    partitions = [("create", "compute"), *(("update", known) for known in ("batch", "debug", "preempt"))]
    for word, partition in partitions:
        command = ["scontrol", word, f"PartitionName={partition}", "Nodes=ALL", "MaxTime=UNLIMITED"]
        made = cluster.capture(state, command, user=None)
        assert made.returncode == 0, made.stderr
    yield state
    cluster.down(name)


def test_slurm_takes_a_sample(site: State, tmp_path: Path) -> None:
    """Slurm would take each accepted specification that fits on the cluster; every field is drawn, extremes too."""
    accepted = generated(tmp_path / "scripts", 150, THERE)
    refused = refused_by_slurm(site, tmp_path / "scripts")

    assert len(accepted) >= 100
    assert refused == ""


def test_slurm_refuses_what_does_not_fit(slurm: State, tmp_path: Path) -> None:
    """Slurm refuses a node too many, a partition and a feature that are not there, so the test above can fail."""
    size = {"script": "train.py", "nodes": 2, "cpus_per_node": 8}
    for number, wrong in enumerate([{"nodes": 5}, {"partition": "compute"}, {"constraint": "v100"}]):
        (tmp_path / f"{number}.sbatch").write_text(rendered(**{**size, **wrong}), encoding="utf-8")
    refused = refused_by_slurm(slurm, tmp_path)

    assert all(f"{number}.sbatch\n" in refused for number in range(3))


def test_slurm_takes_profiles_and_examples(site: State, tmp_path: Path) -> None:
    """Slurm would take every profile and example; the tests of known sites below try each on a cluster of its own."""
    write_profiles(tmp_path)
    for path in CONFIGURATIONS:
        size = {"nodes": THERE.nodes, "cpus_per_node": 32} if path.stem == "svgd" else {}
        job = generate.specify(generate.read_config(path), Layer("here", {"script": "train.py", **size}))
        (tmp_path / f"{path.stem}.sbatch").write_text(generate.render(job.specification), encoding="utf-8")
    refused = refused_by_slurm(site, tmp_path)

    assert len(list(tmp_path.iterdir())) == len(generate.PROFILES) * 3 + len(CONFIGURATIONS)
    assert refused == ""


SHOWN = [
    ({"account": "abc@a100"}, "Account=abc@a100 "),
    ({"account": "es/x"}, "Account=es/x "),
    ({"time_limit": "0-02:40"}, "TimeLimit=02:40:00 "),
    ({"memory_per_node": "0"}, "MinMemoryNode=0 "),
    ({"sbatch": {"comment": 'it\'s "a" \\ #1'}}, 'Comment=it\'s "a" \\ #1'),
    ({"output": "/tmp/%x-a.log"}, "StdOut=/tmp/train-a.log"),
    ({"platform": "gpu", "gpus_per_node": "a100:4", "gpu_option": "gpus-per-node"}, "gpu:a100:4"),
    ({"platform": "gpu", "gpus_per_node": "a100:4", "gpu_option": "gres"}, "gpu:a100:4"),
    ({"platform": "gpu", "gpus_per_node": "a100:4", "gpu_option": "gpus-per-task"}, "gpu:a100:1"),
]
"""Settings that sites use, and how `scontrol show job` shows them."""


def test_settings_are_shown_unchanged(site: State, tmp_path: Path) -> None:
    """Slurm takes what sites use, and shows it as it was given."""
    for account in ("abc@a100", "es/x"):
        for words in (("account", account), ("user", cluster.USER, f"account={account}")):
            made = cluster.capture(site, ["sacctmgr", "-i", "add", *words], user=None)
            assert made.returncode == 0, made.stderr
    size = {"script": "train.py", "nodes": 1, "cpus_per_node": 8}
    for number, (values, shown) in enumerate(SHOWN):
        script = tmp_path / f"{number}.sbatch"
        script.write_text(rendered(**size, **values), encoding="utf-8")
        folder = cluster.stage(site, script)
        held = cluster.capture(site, ["sbatch", "--hold", "--parsable", script.name], folder=folder)
        assert held.returncode == 0, held.stderr
        job = held.stdout.strip()

        assert shown in cluster.capture(site, ["scontrol", "show", "job", job]).stdout
        assert cluster.capture(site, ["scancel", job]).returncode == 0


def test_program_gets_what_was_given(slurm: State, tmp_path: Path) -> None:
    """Through sbatch and srun, each task gets the arguments and the environment as given, and is told its rank."""
    (tmp_path / "show.py").write_text(SHOW, encoding="utf-8")
    script = tmp_path / "show.sbatch"
    size = {"nodes": 2, "cpus_per_node": 4, "processes_per_node": 2, "exclusive": False, "time_limit": "00:05:00"}
    text = rendered(
        framework="gloo",
        script="show.py",
        arguments=HOSTILE,
        env_vars={"HOSTILE": "".join(HOSTILE)},
        virtual_environment="~/torch-env",
        **size,
    )
    script.write_text(text, encoding="utf-8")
    job = cluster.submit(slurm, script, ["later", "$x"])
    told = [json.loads(line.partition(": ")[2]) for line in job.output.splitlines() if "RANK" in line]
    folder = slurm.folder / "home" / cluster.USER / "show"

    assert (job.state, job.exit_status) == ("COMPLETED", 0), job.output
    assert [arguments for arguments, _ in told] == [[*HOSTILE, "later", "$x"]] * 4
    assert sorted((one["RANK"], one["LOCAL_RANK"]) for _, one in told) == [*zip("0123", "0101", strict=True)]
    assert {(one["WORLD_SIZE"], one["OMP_NUM_THREADS"], one["HOSTILE"]) for _, one in told} == {
        ("4", "2", "".join(HOSTILE))
    }
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for _, one in told}) == 1
    assert not list(folder.glob("owned"))
    assert (folder / "logs").is_dir()


def test_script_is_piped_to_sbatch(slurm: State, tmp_path: Path) -> None:
    """A script that sbatch reads from a pipe runs as well, and its log is where the link in logs/ leads."""
    (tmp_path / "hello.py").write_text('print("hello")\n', encoding="utf-8")
    script = tmp_path / "piped.sbatch"
    values = {"nodes": 2, "cpus_per_node": 1, "time_limit": "00:05:00", "exclusive": False}
    script.write_text(rendered(script="hello.py", virtual_environment="~/jax-env", **values), encoding="utf-8")
    folder = cluster.stage(slurm, script)
    piped = ["bash", "-c", "cat piped.sbatch | sbatch --parsable --wait"]
    submitted = cluster.capture(slurm, piped, folder=folder)
    assert submitted.returncode == 0, submitted.stderr
    log = cluster.capture(slurm, ["cat", f"logs/hello_{submitted.stdout.strip()}.out"], folder=folder)

    assert sorted(log.stdout.splitlines()) == ["0: hello", "1: hello"]


def test_jax_starts_by_a_rendered_script(slurm: State, tmp_path: Path) -> None:
    """By a rendered script JAX meets on two nodes, and `verify` hears of every rank."""
    script = tmp_path / "jax.sbatch"
    size = {"nodes": 2, "cpus_per_node": 4, "devices_per_process": 2, "memory_per_cpu": "2G", "time_limit": "00:05:00"}
    text = rendered(framework="jax", script="allreduce.py", virtual_environment="~/jax-env", **size)
    script.write_text(text, encoding="utf-8")
    folder = cluster.stage(slurm, script, extra=[ROOT / "examples" / "jax_multinode" / "allreduce.py"])
    job = cluster.submit(slurm, script, folder=folder)

    assert verify(slurm, job.identity, folder).returncode == 0, job.output


READY = sorted((ROOT / "examples" / "ready_scripts").glob("*.sbatch"))
SAY = """\
import os, sys
rank, size = ("RANK", "WORLD_SIZE") if "RANK" in os.environ else ("SLURM_PROCID", "SLURM_NTASKS")
sys.stdout.write(f"rank {os.environ[rank]} of {os.environ[size]}\\n")
"""


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_ready_script_runs(slurm: State, path: Path, tmp_path: Path, recorded: Callable[..., None]) -> None:
    """A ready script of the site completes as it is, and starts as many ranks as its second line says."""
    (tmp_path / "train.py").write_text(SAY, encoding="utf-8")
    job = cluster.submit(slurm, path, extra=[tmp_path / "train.py"])
    promised = re.search(r": (\d+) process", path.read_text(encoding="utf-8").splitlines()[1])
    assert promised
    world = int(promised[1])

    assert (job.state, job.exit_status) == ("COMPLETED", 0), job.output
    assert sorted(re.findall(r"rank (\d+ of \d+)", job.output)) == sorted(f"{rank} of {world}" for rank in range(world))
    recorded(path, job_run(slurm, path, job))


NAMES = ["lumi", *(pytest.param(x, marks=pytest.mark.full) for x in sites.names() if x not in ("lumi", "generic"))]
WHERE = "import os\nprint('rank', os.environ['SLURM_PROCID'], 'of', os.environ['SLURM_NTASKS'])\n"


@pytest.fixture(scope="module", params=NAMES)
def known_site(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, generation: str
) -> Iterator[tuple[str, State]]:
    """Boot the cluster of a site, with as many nodes of each group as the largest profile asks for."""
    name = cluster_name(pytestconfig, request.param, generation)
    cluster.down(name)
    options = {"name": name, "slurm": generation, "nodes": 8}
    yield request.param, boot(read_specification(None, options, site=request.param))
    cluster.down(name)


def test_a_script_for_a_known_site_runs(known_site: tuple[str, State], tmp_path: Path) -> None:
    """A script that `generate` makes for a site runs on each of its GPUs there; accounting shows what it asks for."""
    name, state = known_site
    (tmp_path / "show.py").write_text(WHERE, encoding="utf-8")
    script = tmp_path / "site.sbatch"
    size = {"nodes": 2, "time_limit": "00:05:00", "virtual_environment": "~/jax-env"}
    script.write_text(rendered(cluster=name, framework="jax", script="show.py", **size), encoding="utf-8")
    job = cluster.submit(state, script)
    site = sites.read(name)
    (default,) = re.findall(r"PartitionName=(\S+) .*Default=YES", state.specification.partitions)
    gpus = 2 * int(str(site["gpus_per_node"]).rpartition(":")[2])
    ranks = sorted(int(line.split()[2]) for line in job.output.splitlines() if " of " in line)
    ask = ["sacct", "-nXP", f"--jobs={job.identity}", "--format=Partition,Account,NNodes,AllocTRES"]
    partition, account, nodes, allocated = cluster.capture(state, ask).stdout.strip().split("|")

    assert (job.state, job.exit_status) == ("COMPLETED", 0), job.output
    assert ranks == list(range(gpus))
    assert partition == site.get("partition", default)
    assert account == site.get("account", "research")
    assert (nodes, f"gres/gpu={gpus}" in allocated.split(",")) == ("2", True), allocated


def test_a_known_site_takes_every_profile(known_site: tuple[str, State], tmp_path: Path) -> None:
    """On the cluster of a site Slurm would take each size and framework, and nothing longer than the site allows."""
    name, state = known_site
    write_profiles(tmp_path, cluster=name)

    assert refused_by_slurm(state, tmp_path) == ""
    if "MaxTime" in state.specification.partitions:
        first = min(tmp_path.glob("*.sbatch"))
        folder = cluster.stage(state, first)
        longer = cluster.capture(state, ["sbatch", "--test-only", "--time=99-0", first.name], folder=folder)
        assert "time limit" in longer.stderr.lower()
