"""What srun tells a process about itself and its step."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from srunbook.slurm.hostlist import SlurmParseError, expand_hostlist, expand_tasks, parse_gpus

REQUIRED = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST")


class NotInStepError(RuntimeError):
    """The process was not started by srun, so Slurm has not told it its rank."""


@dataclass(frozen=True)
class StepEnvironment:
    """A task's place in its step; ranks and nodes count from 0.

    Args:
        nodes: Names of the nodes of the step.
        tasks_per_node: Number of tasks on each of these nodes.
        cpus_per_task: CPUs of each task, or None if srun was not given a number.
        gpus_on_node: GPUs that the step has on this node.
    """

    rank: int
    world_size: int
    local_rank: int
    node_id: int
    nodes: tuple[str, ...]
    tasks_per_node: tuple[int, ...]
    job_id: int
    step_id: int
    cpus_per_task: int | None = None
    gpus_on_node: int = 0

    @property
    def node(self) -> str:
        """Return the name of the task's node."""
        return self.nodes[self.node_id]

    @property
    def local_world_size(self) -> int:
        """Return the number of tasks on the task's node."""
        return self.tasks_per_node[self.node_id]

    @property
    def coordinator(self) -> str:
        """Return the name of the node of rank 0."""
        return self.nodes[0]

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> StepEnvironment:
        """Read the environment that srun gives to each task.

        Args:
            environ: The environment; by default, this process's.

        Raises:
            NotInStepError: srun did not start this process.
            SlurmParseError: A variable does not have the form that Slurm gives it, or contradicts another.

        >>> step = StepEnvironment.from_environ({
        ...     "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NODEID": "1",
        ...     "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        ... })
        >>> step.rank, step.node, step.coordinator
        (2, 'n2', 'n1')
        """
        environ = os.environ if environ is None else environ
        _check_started_by_srun(environ)
        gpus = environ.get("SLURM_GPUS_ON_NODE") or environ.get("SLURM_GPUS_PER_NODE")
        step = cls(
            rank=_number(environ, "SLURM_PROCID"),
            world_size=_number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
            local_rank=_number(environ, "SLURM_LOCALID"),
            node_id=_number(environ, "SLURM_NODEID"),
            nodes=tuple(expand_hostlist(environ["SLURM_STEP_NODELIST"])),
            tasks_per_node=tuple(expand_tasks(_first(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")[1])),
            job_id=_number(environ, "SLURM_JOB_ID", "SLURM_JOBID"),
            step_id=_number(environ, "SLURM_STEP_ID"),
            cpus_per_task=_number(environ, "SLURM_CPUS_PER_TASK") if environ.get("SLURM_CPUS_PER_TASK") else None,
            gpus_on_node=parse_gpus(gpus) if gpus else 0,
        )
        _check_consistent(step)
        return step


def _check_started_by_srun(environ: Mapping[str, str]) -> None:
    if not (environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")):
        raise NotInStepError(
            "SLURM_JOB_ID is not set: this process is not part of a Slurm job. Start it with srun inside a job, or "
            "here with: srunbook simulate --nodes 2 --ntasks-per-node 2 -- python train.py"
        )
    missing = [name for name in REQUIRED if not environ.get(name)]
    if missing:
        raise NotInStepError(
            f"{', '.join(missing)} not set: this process is inside a Slurm job, but srun did not start it. The script "
            "of a job runs once, on its first node; put srun before the command, as in: srun python train.py"
        )


def _first(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first variable that is set, and its value."""
    for name in names:
        if environ.get(name):
            return name, environ[name]
    raise NotInStepError(f"{' and '.join(names)} not set: srun sets them for each task; was the environment cut down?")


def _number(environ: Mapping[str, str], *names: str) -> int:
    name, text = _first(environ, *names)
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise SlurmParseError(name, text, "this is no whole number", "4")
    return int(text)


def _check_consistent(step: StepEnvironment) -> None:
    """Refuse what cannot be one step, such as an allocation's task count with one process."""
    nodes_fit = step.node_id < len(step.nodes) == len(step.tasks_per_node)
    if not (nodes_fit and step.rank < step.world_size == sum(step.tasks_per_node)):
        text = f"rank {step.rank} of {step.world_size} on node {step.node_id} of {len(step.nodes)}"
        problem = f"the nodes have {sum(step.tasks_per_node)} tasks: {step.tasks_per_node}"
        raise SlurmParseError("step environment", text, problem, "rank 0 of 4 on node 0 of 2")
