"""The configuration files of the cluster are what the specification asks for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from srunbook.cluster import Specification
from srunbook.cluster._configuration import (
    choose_plugins,
    gres_conf,
    hosts,
    module_files,
    slurm_conf,
    task_prolog,
)

PLUGINS = choose_plugins("22.05.8", cgroup_v1=True)


def values(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_slurm_conf_names_what_was_asked_for():
    """Nodes, CPUs, memory, GPUs and features of the specification stand in slurm.conf."""
    text = slurm_conf(Specification(nodes=3, cpus=8, memory="32G", gpus_per_node=2, features=("h100", "ib")), PLUGINS)
    (node,) = [line for line in text.splitlines() if line.startswith("NodeName")]

    assert node == (
        "NodeName=node[1-3] NodeAddr=10.77.0.[1-3] CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 "
        "ThreadsPerCore=1 RealMemory=32768 Gres=gpu:h100:2 Feature=h100,ib"
    )
    assert "DefMemPerCPU=4096" in text
    assert values(text)["ProctrackType"] == "proctrack/cgroup"


def test_a_cluster_without_gpus_has_no_trace_of_them():
    """Without GPUs neither slurm.conf nor gres.conf mentions any."""
    specification = Specification(gpus_per_node=0, features=())

    assert gres_conf(specification) == ""
    assert not any(word in slurm_conf(specification, PLUGINS).lower() for word in ("gres", "gpu", "feature"))


def test_one_node_needs_no_range():
    """A cluster of one node has plain names, which Slurm accepts everywhere."""
    text = slurm_conf(Specification(nodes=1), PLUGINS)

    assert "NodeName=node1 NodeAddr=10.77.0.1 " in text
    assert gres_conf(Specification(nodes=1, gpus_per_node=1)).endswith("File=/dev/gpu0\n")


def test_a_requeued_job_waits_seconds():
    """The life of a credential, which a requeued job waits for, is ten seconds."""
    assert values(slurm_conf(Specification(), PLUGINS))["AuthInfo"] == "cred_expire=10"


def test_all_machines_are_in_hosts():
    """Controller, login node and compute nodes resolve by name."""
    lines = hosts(Specification(nodes=2)).splitlines()

    assert lines[2:] == ["10.77.0.254 ctl", "10.77.0.253 login", "10.77.0.1 node1", "10.77.0.2 node2"]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}, "export JAX_NUM_CPU_DEVICES=1\n"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "4"}, "export JAX_NUM_CPU_DEVICES=2\n"),
        (
            {"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "1", "SLURM_GPUS_ON_NODE": "12"},
            "export JAX_NUM_CPU_DEVICES=3\n",
        ),
        (
            {"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2", "SLURM_GPUS_ON_NODE": "12"},
            "export JAX_NUM_CPU_DEVICES=4\n",
        ),
        ({"SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "4"}, "export JAX_NUM_CPU_DEVICES=1\n"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "JAX_NUM_CPU_DEVICES": "8"}, ""),
    ],
    ids=["batch-shell", "no-gpus", "two-each", "second-node", "third-node", "more-tasks-than-gpus", "set-by-the-job"],
)
def test_the_task_prolog_divides_the_gpus_of_the_node(tmp_path, environ, said):
    """The TaskProlog exports the GPUs of the node divided by the tasks on it, and leaves a set value alone."""
    script = Path(tmp_path / "prolog.sh")
    script.write_text(task_prolog())
    result = subprocess.run(
        ["bash", script], env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True, check=True
    )

    assert result.stdout == said
    assert result.stderr == ""


def test_modules_name_environment_and_image():
    """The modules point to the environment and the image in the nodes; without environment there is no python."""
    files = module_files("/somewhere/env", "/opt/images/jax.sif")

    assert "prepend-path PATH /somewhere/env/bin" in files["python"]
    assert "setenv JAX_IMAGE /opt/images/jax.sif" in files["jax/23.10-sif"]
    assert sorted(module_files(None, "x")) == ["dl", "jax/23.10-sif"]
