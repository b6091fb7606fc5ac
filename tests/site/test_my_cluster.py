"""The panel's program fits the job scripts of the site as `srunbook adapt` does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.node import call

from srunbook import adapt, generate

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "support" / "my_cluster.mjs"
SCRIPTS = sorted((ROOT / "slurm").rglob("*.sbatch"))
IN_CONTAINERS = [path for path in SCRIPTS if "singularity run" in path.read_text(encoding="utf-8")]

CLUSTERS = [
    {"partition": "batch", "account": "physics", "qos": "long", "constraint": "a100&ib"},
    {"partition": None, "account": None, "qos": None, "constraint": None},
    {"platform": "gpu", "gpus_per_node": 8, "cpus_per_node": 128},
    {"platform": "gpu", "gpus_per_node": "a100:4", "cpus_per_node": 72, "partition": "gpu-with-a-long-name"},
    {"platform": "gpu", "gpus_per_node": 1, "cpus_per_node": 8},
    {"platform": "cpu", "gpus_per_node": None, "cpus_per_node": 64},
    {"modules_to_load": ["gcc/13", "cuda/12.4", "openmpi"]},
    {"modules_to_load": []},
]
OUTSIDE = [
    {"virtual_environment": "~/my-env", "account": None},
    {"virtual_environment": "/scratch/me/env", "modules_to_load": ["python/3.12"]},
    {"conda_environment": "~/miniforge3/envs/torch", "modules_to_load": []},
    {"conda_environment": "$WORK/conda/envs/jax_0.10", "partition": "batch"},
    {"conda_environment": "~/.conda/envs/torch", "modules_to_load": ["miniforge"]},
]
INSIDE = [
    {"container_image": "$SCRATCH/my.sif"},
    {"container_image": "/images/jax.sif", "modules_to_load": ["apptainer"]},
]


def aligned(text: str) -> str:
    """Return a script with two blanks before each comment."""
    return re.sub(r"(?<=\S) +#", "  #", text)


@pytest.mark.parametrize(
    ("scripts", "clusters"),
    [
        pytest.param(SCRIPTS, CLUSTERS, id="directives"),
        pytest.param([path for path in SCRIPTS if path not in IN_CONTAINERS], OUTSIDE, id="environments"),
        pytest.param(IN_CONTAINERS, INSIDE, id="containers"),
    ],
)
def test_as_adapt_does(scripts, clusters):
    """Every job script comes out as `srunbook adapt` writes it, but for the blanks before a comment."""
    texts = [path.read_text(encoding="utf-8") for path in scripts]
    for cluster, made in zip(clusters, call(RUNNER, {"scripts": texts, "clusters": clusters}), strict=True):
        site = adapt.site(generate.Layer("here", cluster))
        for path, text in zip(scripts, made, strict=True):
            assert aligned(text) == aligned(adapt.adapt(path.read_bytes(), site).data.decode()), (cluster, path)
