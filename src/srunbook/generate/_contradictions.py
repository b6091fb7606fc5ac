"""Fields of a job that contradict each other, and what to say then.

The texts are data, because the page that renders job scripts in a browser shows the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Job = Any
"""A `JobSpecification`, whose file imports this one."""


class Contradiction(NamedTuple):
    """A rule about several fields: its name, the field that a message names, what the message says, when it is broken.

    In the text, `{...}` is one of `facts`.
    """

    name: str
    field: str
    text: str
    broken: Callable[[Job], bool]


ONE_PYTHON = "Python comes from only one of them. Remove the other"
TORCHRUN_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
"""Signals that any torchrun passes on to its processes."""

INTERFACE_NAMES = frozenset({"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})

CONTRADICTIONS = (
    Contradiction(
        "no-type",
        "gpus_per_node",
        "names no type of GPU before its colon. Write the number alone, or a type, as in a100:4",
        lambda one: str(one.gpus_per_node).lower().startswith("gpu:"),
    ),
    Contradiction(
        "gpus-on-cpu",
        "gpus_per_node",
        "goes with platform: gpu, and platform is cpu. Change one of them",
        lambda one: one.platform == "cpu" and bool(one.gpus),
    ),
    Contradiction(
        "no-gpus",
        "platform",
        "needs GPUs: add gpus_per_node, as in gpus_per_node: 4; with gpu_option: none if you get whole nodes anyway",
        lambda one: one.platform == "gpu" and not one.gpus,
    ),
    Contradiction(
        "gloo-on-gpu",
        "framework",
        "computes on CPUs only: take torchrun for GPUs, or platform: cpu",
        lambda one: one.framework == "gloo" and one.platform == "gpu",
    ),
    Contradiction(
        "two-memories",
        "memory_per_node",
        "cannot go with memory_per_cpu: Slurm takes only one of them. Remove the other",
        lambda one: bool(one.memory_per_node and one.memory_per_cpu),
    ),
    Contradiction(
        "container-venv",
        "container_image",
        f"cannot go with virtual_environment: {ONE_PYTHON}",
        lambda one: bool(one.container_image and one.virtual_environment),
    ),
    Contradiction(
        "container-conda",
        "container_image",
        f"cannot go with conda_environment: {ONE_PYTHON}",
        lambda one: bool(one.container_image and one.conda_environment),
    ),
    Contradiction(
        "conda-venv",
        "conda_environment",
        f"cannot go with virtual_environment: {ONE_PYTHON}",
        lambda one: bool(one.conda_environment and one.virtual_environment),
    ),
    Contradiction(
        "two-interfaces",
        "network_interface",
        "cannot go with NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME in env_vars: it sets both. Remove one of them",
        lambda one: bool(one.network_interface) and not INTERFACE_NAMES.isdisjoint(one.env_vars),
    ),
    Contradiction(
        "uneven-cpus",
        "processes_per_node",
        "makes {processes} processes on a node, which cannot share {cpus_per_node} CPUs evenly. "
        "Take cpus_per_node: {even_cpus}",
        lambda one: one.cpus_per_node % one.processes != 0,
    ),
    Contradiction(
        "uneven-gpus",
        "processes_per_node",
        "makes {processes} processes on a node, which cannot share {gpus} GPUs evenly. Take processes_per_node: {gpus}",
        lambda one: bool(one.gpus) and one.gpus % one.processes != 0,
    ),
    Contradiction(
        "devices-elsewhere",
        "devices_per_process",
        "is only for JAX on CPUs. Remove it",
        lambda one: one.devices_per_process is not None and (one.framework != "jax" or one.platform == "gpu"),
    ),
    Contradiction(
        "many-devices",
        "devices_per_process",
        "is more than the {share} CPUs of a process. Take at most {share}",
        lambda one: one.devices_per_process is not None and one.devices_per_process > max(1, share(one)),
    ),
    Contradiction(
        "interactive-name",
        "name",
        "makes Lightning ignore Slurm: it takes a job of that name for an interactive one. Take another name",
        lambda one: one.framework == "lightning" and one.job_name in ("bash", "interactive"),
    ),
    Contradiction(
        "older-torchrun",
        "signal",
        "ends an older torchrun, which passes on TERM, INT, HUP and QUIT alone. Take one of these, as in TERM@120",
        lambda one: (
            one.framework == "torchrun"
            and one.older_torchrun
            and one.signal is not None
            and one.stop[0] not in TORCHRUN_SIGNALS
        ),
    ),
)
"""All rules, in the order in which they are asked; the first that is broken is told."""


def share(one: Job) -> int:
    """Return the CPUs of each process."""
    return int(one.cpus_per_node // one.processes)


def facts(one: Job) -> Mapping[str, int]:
    """Return what the texts name."""
    named = {name: getattr(one, name) for name in ("processes", "cpus_per_node", "gpus")}
    return {**named, "share": share(one), "even_cpus": max(1, share(one)) * one.processes}


def contradiction(one: Job) -> tuple[str, str] | None:
    """Find the first rule that a job breaks; return its field and what to say, or None."""
    for rule in CONTRADICTIONS:
        if rule.broken(one):
            return rule.field, rule.text.format_map(facts(one))
    return None
