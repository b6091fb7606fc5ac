"""The panel's program fits the job scripts of the site to a cluster, and changes nothing else."""

from __future__ import annotations

import re
from difflib import unified_diff
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.node import call

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "support" / "my_cluster.mjs"
SCRIPTS = sorted([*(ROOT / "slurm").rglob("*.sbatch"), *(ROOT / "examples" / "ready_scripts").glob("*.sbatch")])

DIRECTIVES = ("partition", "account", "qos", "constraint")
CLUSTERS = [
    {"partition": "batch", "account": "physics", "qos": "long", "constraint": "a100&ib"},
    dict.fromkeys(DIRECTIVES),
    {"partition": "batch", "account": None, "platform": "gpu", "gpus_per_node": "a100:4", "cpus_per_node": 72},
    {"platform": "cpu", "gpus_per_node": None, "cpus_per_node": 64, "virtual_environment": "/scratch/me/env"},
    {"conda_environment": "~/.conda/envs/torch", "modules_to_load": ["gcc/13", "miniforge"]},
    {"container_image": "$SCRATCH/my.sif", "modules_to_load": []},
    {"nodes": 8, "memory_per_node": "480G", "time_limit": "1-00:00:00", "script": "my_train.py"},
]

OURS = re.compile(
    r'#SBATCH --|module load |(export )?image=|VENV=|source ".*/bin/activate"|PROCESSES=| +\S+\.py$'
    r'|.*"\$\{@:-\S+\}"( \|\| status=\$\?| &)?$'
    r"|# .* nodes? of .*: \d+ process(es)?|# Made by: srunbook generate ",
    re.IGNORECASE,
)
"""Lines that depend on the cluster."""

FITTED = {
    ("torchrun/ddp", "qos: long, gpus_per_node: 'a100:4', cpus_per_node: 72, virtual_environment: ~/my-env"): """
#SBATCH --gres=gpu:a100:4     # EDIT: the GPUs of one node
#SBATCH --cpus-per-task=72    # EDIT: the CPU cores of one node that go with its GPUs
#SBATCH --qos=long
source "$HOME/my-env/bin/activate"     # EDIT: your environment, where all nodes see it
""",
    ("torchrun/ddp", "gpus_per_node: 8, conda_environment: ~/.conda/envs/torch, modules_to_load: [miniforge]"): """
#SBATCH --gpus-per-node=8     # EDIT: the GPUs of one node
module load miniforge
source "$(conda info --base)/bin/activate" torch  # EDIT: your environment, where all nodes see it
""",
    ("jax_multinode/data_parallel", "gpus_per_node: 4, cpus_per_node: 64, conda_environment: $WORK/c/envs/jax_1"): """
#SBATCH --cpus-per-task=16    # EDIT: the CPU cores of a node, divided by its GPUs
source "$WORK/c/bin/activate" jax_1  # EDIT: the Python that has JAX
""",
    ("torchrun/ddp_modules", "modules_to_load: [gcc/13, cuda/12.4, openmpi]"): """
module load gcc/13 cuda/12.4 openmpi  # EDIT: your site's module with PyTorch
""",
    ("torchrun/ddp_container", "container_image: $SCRATCH/my.sif, modules_to_load: [apptainer]"): """
module load apptainer
image="$SCRATCH/my.sif"    # EDIT: your image, where all nodes see it
""",
    (
        "torchrun/ddp",
        "conda_environment: torch, nodes: 8, memory_per_node: 480G, time_limit: '02:00:00', script: a/t.py",
    ): """
#SBATCH --nodes=8             # EDIT: how many nodes
#SBATCH --mem=480G            # EDIT: memory on each node, for all its processes
#SBATCH --time=02:00:00       # EDIT: hours:minutes:seconds
source "$(conda info --base)/bin/activate" torch  # EDIT: your environment, where all nodes see it
  "${@:-a/t.py}"
""",
    (
        "../examples/ready_scripts/torchrun-one-node",
        "nodes: 8, memory_per_node: 480G, gpus_per_node: 8, script: t.py",
    ): """
#SBATCH --gpus-per-node=8
#SBATCH --mem=480G
PROCESSES=8  # on each node: one for each GPU
  t.py
""",
    ("lightning/single_gpu", "gpus_per_node: 'h100:8', cpus_per_node: 128, memory_per_node: 480G"): """
#SBATCH --gres=gpu:h100:1     # EDIT: type and number of the GPUs of a node; gpu:N for any type
#SBATCH --cpus-per-task=16    # EDIT: the CPU cores of a node, divided by its GPUs; 18 on Raven
#SBATCH --mem=60G             # EDIT: memory on each node, for all its processes
""",
}
"""What becomes of a script, by its name and the cluster: the lines that are new. A script for one GPU keeps one."""


def changed(before: str, after: str, mark: str) -> list[str]:
    """Return the lines that one text has and the other lacks: `+` for new ones, `-` for old ones."""
    lines = list(unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    return [line[1:] for line in lines if line.startswith(mark)]


def test_only_lines_of_the_cluster_change():
    """In every script, directives have the values of the cluster or are gone, and other lines stay."""
    texts = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    for cluster, fitted in zip(CLUSTERS, call(RUNNER, {"scripts": texts, "clusters": CLUSTERS}), strict=True):
        for path, before, after in zip(SCRIPTS, texts, fitted, strict=True):
            old, new = changed(before, after, "-"), changed(before, after, "+")
            assert all(OURS.match(line) for line in (*old, *new)), (cluster, path)
            asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", after, re.MULTILINE))
            given = {name: cluster[name] for name in DIRECTIVES if name in cluster}
            assert {name: asked.get(name) for name in given} == given, path


@pytest.mark.parametrize(("script", "cluster"), FITTED)
def test_new_lines(script, cluster):
    """GPUs, cores, modules and environments come in the forms that a script for this cluster would have."""
    before = (ROOT / "slurm" / f"{script}.sbatch").read_text(encoding="utf-8")
    ((after,),) = call(RUNNER, {"scripts": [before], "clusters": [YAML(typ="safe").load(f"{{{cluster}}}")]})

    assert changed(before, after, "+") == FITTED[script, cluster].strip().splitlines()
