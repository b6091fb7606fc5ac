"""Adapted scripts on a real Slurm: accounting shows what was asked for, and programs say where they ran."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.published import boot, cluster_name

from srunbook import adapt, cluster
from srunbook.cluster import State, read_specification
from srunbook.generate import Layer

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).with_name("adapt_site.yaml")
MODELS = {"middle": "a100", "large": "h100", "small": None}
"""Types of the GPUs of each partition; nodes of `small` have none."""

GPUS = {"platform": "gpu", "account": "physics", "qos": "short"}
CASES = {
    "venv": (
        {**GPUS, "partition": "middle", "constraint": "a100", "gpus_per_node": "a100:4", "cpus_per_node": 16}
        | {"virtual_environment": "~/my"},
        ["torchrun/ddp", "lightning/single_gpu", "jax_multinode/data_parallel"],
        "program of my/bin",
    ),
    "conda": (
        {**GPUS, "partition": "large", "constraint": None, "gpus_per_node": 8, "cpus_per_node": 32}
        | {"conda_environment": "~/conda/envs/mine"},
        ["torchrun/ddp_conda", "torchrun/run_distributed", "lightning/multi_node_multi_gpu"],
        "program of conda/envs/mine/bin",
    ),
    "container": (  # what a site grants may be a part of the node
        {**GPUS, "partition": "large", "constraint": "h100", "gpus_per_node": "h100:4", "cpus_per_node": 16}
        | {"container_image": "~/mine.sif", "modules_to_load": ["images/2"]},
        ["jax_multinode/G4N1p4", "jax_multinode/G4N2p2", "jax_multinode/data_parallel_container"],
        "image /home/alice/mine.sif",
    ),
    "modules": (
        {**GPUS, "partition": "middle", "constraint": None, "gpus_per_node": 4, "cpus_per_node": 16}
        | {"modules_to_load": ["frame/1.0", "images/2"]},
        ["torchrun/ddp_modules", "jax_multinode/G4N2p4", "jax_multinode/allreduce"],
        "(program of|image /home)",
    ),
    "cpus": (
        {"partition": "small", "account": "chemistry", "qos": "normal", "constraint": "plain", "cpus_per_node": 12}
        | {"virtual_environment": "~/my"},
        ["gloo_ddp/ddp_cpu", "gloo_ddp/ddp_2node_cpu", "gloo_ddp/profile"],
        "program of my/bin",
    ),
}
"""Configurations of a site, the scripts that are adapted to them, and what their tasks say."""

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


@pytest.mark.parametrize("kind", CASES)
def test_accounting_shows_what_was_asked_for(site: State, kind: str, tmp_path: Path) -> None:
    """Each adapted script is submitted as it is; its job has the partition, account, QOS, GPUs, CPUs and nodes."""
    wanted, scripts, says = CASES[kind]
    there = adapt.site(Layer("here", wanted))
    jobs = {}
    for script in (ROOT / "slurm" / f"{name}.sbatch" for name in scripts):
        file = tmp_path / script.name
        file.write_bytes(adapt.adapt(script.read_bytes(), there).data)
        folder = cluster.stage(site, file, user="alice")
        command = ["sbatch", "--parsable", file.name]
        said = cluster.capture(site, command, user="alice", folder=folder)
        assert said.returncode == 0, f"{wanted}\n{said.stderr}\n{file.read_text()}"
        jobs[said.stdout.strip()] = (script, folder)
    for job, (script, folder) in jobs.items():
        ended = cluster.await_job(site, job, user="alice")
        form = "--format=Partition,Account,QOS,NNodes,AllocTRES,NodeList"
        rows = cluster.capture(site, ["sacct", "-XnPj", job, form], user="alice").stdout
        partition, account, qos, nodes, resources, _ = rows.strip().split("|")
        before = script.read_text(encoding="utf-8")
        assert ended.state == "COMPLETED", f"{ended.output}\n{(tmp_path / script.name).read_text()}"
        assert (partition, account, qos) == (wanted["partition"], wanted["account"], wanted["qos"])
        assert int(nodes) == asked_for(before, "nodes", 1)
        got = dict(pair.split("=") for pair in resources.split(","))
        one = script.stem == "single_gpu"
        gpus = 0 if there.gpus is None else int(nodes) * (1 if one else there.gpus)
        model = MODELS[partition]
        assert int(got.get("gres/gpu", 0)) == gpus, resources
        assert int(got.get(f"gres/gpu:{model}", gpus if there.kind is None else 0)) == gpus, resources
        share = wanted["cpus_per_node"] // (there.gpus or 1) if one else wanted["cpus_per_node"]
        assert int(got["cpu"]) == int(nodes) * share, resources
        logs = "".join(log.read_text() for log in sorted((site.folder / folder.lstrip("/")).glob("*.out")))
        assert re.search(says, logs), logs


def test_the_site_refuses_what_was_not_adapted(site: State) -> None:
    """A script as it is published names a partition that the site lacks, so the tests above can fail."""
    script = ROOT / "slurm" / "torchrun" / "ddp.sbatch"
    folder = cluster.stage(site, script, user="alice")
    said = cluster.capture(site, ["sbatch", "--test-only", script.name], user="alice", folder=folder)

    assert (said.returncode != 0, "invalid partition" in said.stderr) == (True, True), said.stderr
