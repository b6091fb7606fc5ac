"""The environment that srun gives to each task, as a table: variable, generations that set it, value."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srunbook.slurm import compress_hostlist, compress_tasks

GENERATIONS = ("22.05", "24.11", "26.05")
"""The generations of Slurm whose environment can be imitated, oldest first."""

TIME_LIMIT = 3600
"""Seconds between SLURM_JOB_START_TIME and SLURM_JOB_END_TIME."""


@dataclass(frozen=True)
class Job:
    """A simulated job: what was asked for, and where it runs."""

    job_id: int
    nodes: tuple[str, ...]  # names: addresses of this machine
    tasks_per_node: tuple[int, ...]
    cpus_per_task: int | None  # None where no number was asked for
    gpus_per_node: int
    uniform: bool  # one plain number of tasks per node was asked for
    generation: str  # of Slurm, to imitate
    directory: Path  # where it was submitted
    start_time: int = field(default_factory=lambda: int(time.time()))  # seconds since 1970

    @property
    def world_size(self) -> int:
        """Number of tasks."""
        return sum(self.tasks_per_node)

    @property
    def cpus_on(self) -> list[int]:
        """Number of CPUs that the job has on each node."""
        return [tasks * (self.cpus_per_task or 1) for tasks in self.tasks_per_node]

    @property
    def nodelist(self) -> str:
        """Names of all nodes, in the short form."""
        return compress_hostlist(self.nodes)

    @property
    def layout(self) -> str:
        """Tasks on each node, in the short form."""
        return compress_tasks(self.tasks_per_node)

    @property
    def gpu_ids(self) -> str | None:
        """Numbers of the GPUs of a node, or None without GPUs."""
        return ",".join(map(str, range(self.gpus_per_node))) or None

    def tasks(self) -> list[Task]:
        """Return the tasks in the order of their ranks: node after node, as `srun` places them by default."""
        tasks: list[Task] = []
        for node_id, count in enumerate(self.tasks_per_node):
            tasks += [Task(self, len(tasks) + local_rank, local_rank, node_id) for local_rank in range(count)]
        return tasks


@dataclass(frozen=True)
class Task:
    """One task of a job; numbers count from 0."""

    job: Job
    rank: int
    local_rank: int
    node_id: int

    @property
    def node(self) -> str:
        """Name of its node."""
        return self.job.nodes[self.node_id]

    @property
    def ranks_on_node(self) -> range:
        """Ranks of all tasks on its node."""
        first = self.rank - self.local_rank
        return range(first, first + self.job.tasks_per_node[self.node_id])


@dataclass(frozen=True)
class Variable:
    """One row of the table, for the generations of Slurm that set it."""

    value: Callable[[Task], object]  # gives None where it is not set
    since: str = GENERATIONS[0]
    until: str = GENERATIONS[-1]


def _name(lookup: Callable[[int], Sequence[object]], number: int) -> object:
    """Return the name of a user or group, or the number where it has no name, as in a container."""
    try:
        return lookup(number)[0]
    except KeyError:
        return number


# [table]
VARIABLES: dict[str, Variable] = {
    # the task
    "SLURM_PROCID": Variable(lambda task: task.rank),
    "SLURM_LOCALID": Variable(lambda task: task.local_rank),
    "SLURM_NODEID": Variable(lambda task: task.node_id),
    "SLURM_GTIDS": Variable(lambda task: ",".join(map(str, task.ranks_on_node))),
    "SLURMD_NODENAME": Variable(lambda task: task.node),
    "SLURM_TOPOLOGY_ADDR": Variable(lambda task: task.node),
    "SLURM_TOPOLOGY_ADDR_PATTERN": Variable(lambda _: "node"),
    # the step
    "SLURM_STEP_ID": Variable(lambda _: 0),
    "SLURM_STEPID": Variable(lambda _: 0),
    "SLURM_STEP_NODELIST": Variable(lambda task: task.job.nodelist),
    "SLURM_STEP_NUM_NODES": Variable(lambda task: len(task.job.nodes)),
    "SLURM_STEP_NUM_TASKS": Variable(lambda task: task.job.world_size),
    "SLURM_STEP_TASKS_PER_NODE": Variable(lambda task: task.job.layout),
    "SLURM_NTASKS": Variable(lambda task: task.job.world_size),
    "SLURM_NPROCS": Variable(lambda task: task.job.world_size),
    "SLURM_TASKS_PER_NODE": Variable(lambda task: task.job.layout),
    "SLURM_NTASKS_PER_NODE": Variable(lambda task: task.job.tasks_per_node[0] if task.job.uniform else None),
    "SLURM_CPUS_PER_TASK": Variable(lambda task: task.job.cpus_per_task),
    "SLURM_TRES_PER_TASK": Variable(
        lambda task: f"cpu={task.job.cpus_per_task}" if task.job.cpus_per_task else None, since="24.11"
    ),
    "SLURM_LAUNCH_NODE_IPADDR": Variable(lambda task: task.job.nodes[0]),
    "SLURM_SRUN_COMM_HOST": Variable(lambda task: task.job.nodes[0]),
    # the job
    "SLURM_JOB_ID": Variable(lambda task: task.job.job_id),
    "SLURM_JOBID": Variable(lambda task: task.job.job_id),
    "SLURM_JOB_NAME": Variable(lambda _: "simulation"),
    "SLURM_JOB_NODELIST": Variable(lambda task: task.job.nodelist),
    "SLURM_NODELIST": Variable(lambda task: task.job.nodelist),
    "SLURM_JOB_NUM_NODES": Variable(lambda task: len(task.job.nodes)),
    "SLURM_NNODES": Variable(lambda task: len(task.job.nodes)),
    "SLURM_JOB_CPUS_PER_NODE": Variable(lambda task: compress_tasks(task.job.cpus_on)),
    "SLURM_CPUS_ON_NODE": Variable(lambda task: task.job.cpus_on[task.node_id]),
    "SLURM_JOB_PARTITION": Variable(lambda _: "simulation"),
    "SLURM_JOB_USER": Variable(lambda _: _name(pwd.getpwuid, os.getuid())),
    "SLURM_JOB_UID": Variable(lambda _: os.getuid()),
    "SLURM_JOB_GID": Variable(lambda _: os.getgid()),
    "SLURM_JOB_GROUP": Variable(lambda _: _name(grp.getgrgid, os.getgid()), since="26.05"),
    "SLURM_SUBMIT_DIR": Variable(lambda task: task.job.directory),
    "SLURM_SUBMIT_HOST": Variable(lambda _: socket.gethostname()),
    "SLURM_CLUSTER_NAME": Variable(lambda _: "simulation"),
    "SLURM_PRIO_PROCESS": Variable(lambda _: 0),
    "SLURM_JOB_START_TIME": Variable(lambda task: task.job.start_time, since="24.11"),
    "SLURM_JOB_END_TIME": Variable(lambda task: task.job.start_time + TIME_LIMIT, since="24.11"),
    "SLURM_OOM_KILL_STEP": Variable(lambda _: 0, since="24.11"),
    "SLURM_NODE_ALIASES": Variable(lambda _: "(null)", until="22.05"),
    # GPUs, where they were asked for
    "SLURM_GPUS_ON_NODE": Variable(lambda task: task.job.gpus_per_node or None),
    "SLURM_GPUS_PER_NODE": Variable(lambda task: task.job.gpus_per_node or None),
    "SLURM_JOB_GPUS": Variable(lambda task: task.job.gpu_ids),
    "SLURM_STEP_GPUS": Variable(lambda task: task.job.gpu_ids),
    "CUDA_VISIBLE_DEVICES": Variable(lambda task: task.job.gpu_ids),
}
# [/table]
"""What srun sets. The guard of each task adds SLURM_TASK_PID, which is known only after the start."""

INHERITED = re.compile(
    r"(SLURM|SLURMD|SBATCH|SRUN|SALLOC|FLUX|PBS|LSB|JSM)_.*"
    r"|(PMI|PMI2|PMIX|PALS|OMPI|ORTE|PRTE|MV2|MVP|MPICH|MPIRUN|MPIEXEC|HYDI)_.*"
    r"|I_MPI_(?!ROOT\Z).*|MPI_LOCAL(RANKID|NRANKS)"
    r"|(JAX_COORDINATOR|TORCHELASTIC|PET|ROLE)_.*"
    r"|JAX_(NUM_CPU_DEVICES|LOCAL_DEVICE_IDS|NUM_PROCESSES|PROCESS_ID)"
    r"|(MASTER_(ADDR|PORT)|RANK|WORLD_SIZE|(LOCAL|GROUP|NODE)_RANK|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE)"
)
"""Variables of a surrounding job, launcher or rank, which must not reach the simulated one."""

DEVICE_COUNT = re.compile(r"--xla_force_host_platform_device_count=\S*\s*")


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the tasks inherit: the surrounding environment without any other job, launcher or device count.

    >>> flags = "--xla_a=1 --xla_force_host_platform_device_count=8 --xla_b=2"
    >>> base_environment({"HOME": "/home/ada", "SLURM_PROCID": "3", "XLA_FLAGS": flags})
    {'HOME': '/home/ada', 'XLA_FLAGS': '--xla_a=1 --xla_b=2'}
    """
    base = {name: value for name, value in environ.items() if not INHERITED.fullmatch(name)}
    if "XLA_FLAGS" in base:
        base["XLA_FLAGS"] = DEVICE_COUNT.sub("", base["XLA_FLAGS"]).strip()
        if not base["XLA_FLAGS"]:
            del base["XLA_FLAGS"]
    return base


def step_environment(task: Task) -> dict[str, str]:
    """Return what srun sets for one task, in the chosen generation of Slurm, as in `VARIABLES`."""
    generation = task.job.generation
    values = {
        name: variable.value(task)
        for name, variable in VARIABLES.items()
        if variable.since <= generation <= variable.until
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def cpu_devices(task: Task) -> int:
    """Return the number of CPU devices of a JAX task: the node's GPUs divided by its tasks, 1 without GPUs."""
    return max(1, task.job.gpus_per_node // task.job.tasks_per_node[task.node_id])
