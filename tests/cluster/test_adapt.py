"""Adapted scripts on a real Slurm: accounting shows what was asked for, and programs say where they ran."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.published import boot, cluster_name

from srunbook import adapt, cluster
from srunbook.cluster import State, read_specification
from srunbook.generate import Layer

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).with_name("adapt_site.yaml")
SEED = 20261123

GROUPS = {"middle": ("a100", 4, 16, "a100"), "large": ("h100", 8, 32, "h100"), "small": (None, 0, 12, "plain")}
"""By partition: type and number of the GPUs of a node, its CPUs, and its feature."""

SCRIPTS = {
    "venv": ["torchrun/ddp", "torchrun/run_distributed", "lightning/multi_node_multi_gpu", "lightning/single_gpu"],
    "modules": ["torchrun/ddp_modules", "jax_multinode/data_parallel_container"],
    "container": ["jax_multinode/G4N1p4", "jax_multinode/G4N2p2", "jax_multinode/data_parallel_container"],
}
SCRIPTS["venv"] += ["jax_multinode/data_parallel", "jax_multinode/train_data_parallel", "lightning/ddp"]
SCRIPTS["modules"] += ["jax_multinode/G4N2p4", "jax_multinode/allreduce"]
SCRIPTS["conda"] = [*SCRIPTS["venv"], "torchrun/ddp_conda"]
CPU_SCRIPTS = ["gloo_ddp/ddp_cpu", "gloo_ddp/ddp_2node_cpu", "gloo_ddp/profile"]
"""Scripts by what they can run in; those for CPUs choose their Python by a virtual environment."""

MAKE = """\
cd "$HOME"
for place in my/bin conda/envs/mine/bin conda/bin programs/module programs/container; do
  mkdir -p "$place"
  for name in python torchrun; do
    printf '#!/bin/bash\\necho "program of %s"\\n' "$place" >"$place/$name"
  done
  chmod +x "$place"/*
done
printf '#!/bin/bash\\nwhile [[ "$1" != *.sif ]]; do shift; done; echo "image $1"\\n' >programs/container/singularity
chmod +x programs/container/singularity
printf 'export PATH="%s/my/bin:$PATH"\\n' "$HOME" >my/bin/activate
printf 'export PATH="%s/conda/envs/$1/bin:$PATH"\\n' "$HOME" >conda/bin/activate
"""
"""Makes the environments, whose programs say where they are."""


@dataclass(frozen=True)
class Case:
    """A drawn configuration, and the scripts that are adapted to it.

    Args:
        values: The configuration.
        scripts: Three job scripts.
        says: What each task prints.
    """

    values: dict[str, Any]
    scripts: list[Path]
    says: str


def drawn(chance: random.Random, kind: str) -> Case:
    """Draw a configuration with a kind of environment."""
    cpus_only = kind == "venv" and chance.random() < 0.3
    partition = "small" if cpus_only else chance.choice(["middle", "large"])
    model, gpus, cpus, feature = GROUPS[partition]
    values: dict[str, Any] = {"partition": partition, "account": chance.choice(["physics", "chemistry"])}
    values |= {"qos": chance.choice(["normal", "short"]), "constraint": chance.choice([None, feature])}
    if partition == "large" and chance.random() < 0.5:
        gpus, cpus = 4, 16  # what a site grants may be a part of the node
    values["cpus_per_node"] = cpus
    if gpus:
        values |= {"platform": "gpu", "gpus_per_node": chance.choice([gpus, f"{model}:{gpus}"])}
    values |= {
        "venv": {"virtual_environment": "~/my"},
        "conda": {"conda_environment": "~/conda/envs/mine"},
        "modules": {"modules_to_load": ["frame/1.0", "images/2"]},
        "container": {"container_image": "~/mine.sif", "modules_to_load": ["images/2"]},
    }[kind]
    names = CPU_SCRIPTS if cpus_only else chance.sample(SCRIPTS[kind], 3)
    says = {
        "venv": "program of my/bin",
        "conda": "program of conda/envs/mine/bin",
        "container": "image /home/alice/mine.sif",
    }
    return Case(
        values, [ROOT / "slurm" / f"{name}.sbatch" for name in names], says.get(kind, "(program of|image /home)")
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw three configurations, or twenty under `--full`, and every kind of environment among them."""
    if "case" in metafunc.fixturenames:
        kinds = ["venv", "conda", "container", "modules"]
        cases = [drawn(random.Random(SEED + number), kinds[number % 4]) for number in range(20)]
        marks = [[], [], []] + [[pytest.mark.full]] * 17
        metafunc.parametrize("case", [pytest.param(one, marks=mark) for one, mark in zip(cases, marks, strict=True)])


@pytest.fixture(scope="module")
def site(generation: str, pytestconfig: pytest.Config) -> Iterator[State]:
    """Boot the site, with environments in alice's home."""
    name = cluster_name(pytestconfig, "adapt", generation)
    cluster.down(name)
    state = boot(read_specification(SITE, {"name": name, "slurm": generation}))
    made = cluster.capture(state, ["bash", "-c", MAKE], user="alice")
    assert made.returncode == 0, made.stderr
    yield state
    cluster.down(name)


def asked_for(text: str, name: str, otherwise: int) -> int:
    """Return a number that a script asks for."""
    found = re.search(rf"^#SBATCH --{name}=(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else otherwise


def test_accounting_shows_what_was_asked_for(site: State, case: Case, tmp_path: Path) -> None:
    """Each adapted script is submitted as it is; its job has the partition, account, QOS, GPUs, CPUs and nodes."""
    there = adapt.site(Layer("drawn", case.values))
    jobs = {}
    for script in case.scripts:
        file = tmp_path / script.name
        file.write_bytes(adapt.adapt(script.read_bytes(), there).data)
        folder = cluster.stage(site, file, user="alice")
        command = ["sbatch", "--parsable", file.name]
        said = cluster.capture(site, command, user="alice", folder=folder)
        assert said.returncode == 0, f"{case.values}\n{said.stderr}\n{file.read_text()}"
        jobs[said.stdout.strip()] = (script, folder)
    for job, (script, folder) in jobs.items():
        ended = cluster.await_job(site, job, user="alice")
        form = "--format=Partition,Account,QOS,NNodes,AllocTRES,NodeList"
        rows = cluster.capture(site, ["sacct", "-XnPj", job, form], user="alice").stdout
        partition, account, qos, nodes, resources, _ = rows.strip().split("|")
        before = script.read_text(encoding="utf-8")
        wanted = case.values
        assert ended.state == "COMPLETED", f"{ended.output}\n{(tmp_path / script.name).read_text()}"
        assert (partition, account, qos) == (wanted["partition"], wanted["account"], wanted["qos"])
        assert int(nodes) == asked_for(before, "nodes", 1)
        got = dict(pair.split("=") for pair in resources.split(","))
        one = script.stem == "single_gpu"
        gpus = 0 if there.gpus is None else int(nodes) * (1 if one else there.gpus)
        model = GROUPS[partition][0]
        assert int(got.get("gres/gpu", 0)) == gpus, resources
        assert int(got.get(f"gres/gpu:{model}", gpus if there.kind is None else 0)) == gpus, resources
        share = wanted["cpus_per_node"] // (there.gpus or 1) if one else wanted["cpus_per_node"]
        assert int(got["cpu"]) == int(nodes) * share, resources
        logs = "".join(log.read_text() for log in sorted((site.folder / folder.lstrip("/")).glob("*.out")))
        assert re.search(case.says, logs), logs


def test_the_site_refuses_what_was_not_adapted(site: State) -> None:
    """A script as it is published names a partition that the site lacks, so the tests above can fail."""
    script = ROOT / "slurm" / "torchrun" / "ddp.sbatch"
    folder = cluster.stage(site, script, user="alice")
    said = cluster.capture(site, ["sbatch", "--test-only", script.name], user="alice", folder=folder)

    assert (said.returncode != 0, "invalid partition" in said.stderr) == (True, True), said.stderr
