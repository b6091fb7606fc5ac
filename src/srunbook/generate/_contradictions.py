"""Fields of a job that contradict each other, and what to say then.

The texts are data, because the page that renders job scripts in a browser shows the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from srunbook.generate._patterns import MAX_FILE_NAME

Job = Any
"""A `JobSpecification`, whose file imports this one."""


@dataclass(frozen=True)
class Contradiction:
    """A rule about several fields.

    Args:
        name: What other engines call it.
        field: The field that is named with its value.
        text: What follows the field and its value; `{...}` is one of `facts`.
        broken: Whether a job breaks the rule.
    """

    name: str
    field: str
    text: str
    broken: Callable[[Job], bool]


ONE_PYTHON = "Python comes from only one of them. Remove the other"
INTERFACE_NAMES = frozenset({"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})
NO_COLON = "has a colon, which ends a folder in PATH. Move it to a folder without one"

CONTRADICTIONS = (
    Contradiction("no-time", "time_limit", "is no time at all. Give the job some", lambda one: not one.seconds),
    Contradiction(
        "early-signal",
        "signal",
        "comes before the job: the time limit is {time_limit}, {seconds} seconds. "
        "Take fewer seconds, or a longer time_limit",
        lambda one: int((one.signal or "@0").partition("@")[2]) >= max(1, one.seconds),
    ),
    Contradiction(
        "long-output",
        "output",
        "makes a file name of {letters} letters, and Linux takes at most {most_letters}. "
        "Take a shorter one, as in output: logs/%x_%j.out",
        lambda one: letters(one) > MAX_FILE_NAME,
    ),
    Contradiction(
        "no-type",
        "gpus_per_node",
        "names no type of GPU before its colon. Write the number alone, or a type, as in a100:4",
        lambda one: str(one.gpus_per_node).lower().startswith("gpu:"),
    ),
    Contradiction("venv-colon", "virtual_environment", NO_COLON, lambda one: ":" in (one.virtual_environment or "")),
    Contradiction("conda-colon", "conda_environment", NO_COLON, lambda one: ":" in (one.conda_environment or "")),
    Contradiction(
        "gpus-on-cpu",
        "gpus_per_node",
        "goes with platform: gpu, and platform is cpu. Change one of them",
        lambda one: one.platform == "cpu" and bool(one.gpus),
    ),
    Contradiction(
        "no-gpus",
        "platform",
        "needs GPUs: add gpus_per_node, as in gpus_per_node: 4",
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
)
"""All rules, in the order in which they are asked; the first that is broken is told."""


def share(one: Job) -> int:
    """Return the CPUs of each process."""
    return int(one.cpus_per_node // one.processes)


def letters(one: Job) -> int:
    """Count the letters of the log's file name, with the largest number that Slurm gives to a job."""
    return len(one.output.rpartition("/")[2].replace("%x", one.job_name).replace("%j", "4294967295"))


def facts(one: Job) -> Mapping[str, str | int]:
    """Return what the texts name."""
    return {
        "time_limit": one.time_limit,
        "seconds": one.seconds,
        "letters": letters(one),
        "most_letters": MAX_FILE_NAME,
        "processes": one.processes,
        "cpus_per_node": one.cpus_per_node,
        "even_cpus": max(1, share(one)) * one.processes,
        "gpus": one.gpus,
        "share": share(one),
    }


def contradiction(one: Job) -> tuple[str, str] | None:
    """Find the first rule that a job breaks; return its field and what to say, or None."""
    for rule in CONTRADICTIONS:
        if rule.broken(one):
            return rule.field, rule.text.format_map(facts(one))
    return None
