"""The simulation gives the variables that the real srun of each generation was recorded to give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import srunbook.simulate
from srunbook.simulate import GENERATIONS
from srunbook.simulate._environment import Job, cpu_devices, step_environment
from srunbook.slurm import expand_hostlist, expand_tasks

RECORDED = Path(srunbook.simulate.__file__).parent / "recorded"

NOT_SIMULATED = {
    "GPU_DEVICE_ORDINAL": "AMD's name for what CUDA_VISIBLE_DEVICES says",
    "JAX_NUM_CPU_DEVICES": "not of Slurm: the test cluster's TaskProlog sets it, the simulation in another place",
    "ROCR_VISIBLE_DEVICES": "AMD's name for what CUDA_VISIBLE_DEVICES says",
    "SLURMD_DEBUG": "the verbosity of the site's daemons",
    "SLURM_CONF": "the path of the site's configuration",
    "SLURM_DISTRIBUTION": "set where it was asked for, or by --ntasks-per-node with its default",
    "SLURM_JOB_ACCOUNT": "an account of the site",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "a form of 22.05 for heterogeneous jobs",
    "SLURM_JOB_EXCLUSIVE": "how nodes are shared, which a simulation does not do",
    "SLURM_JOB_OVERSUBSCRIBE": "how nodes are shared, which a simulation does not do",
    "SLURM_JOB_QOS": "a quality of service of the site",
    "SLURM_JOB_SLUID": "an identity in the site's accounting",
    "SLURM_MEM_PER_CPU": "the site's default, where the job asks for no memory",
    "SLURM_SCRIPT_CONTEXT": "left by the site's TaskProlog",
    "SLURM_SRUN_COMM_PORT": "the port of a real srun",
    "SLURM_STEP_LAUNCHER_PORT": "the port of a real srun",
    "SLURM_TASK_PID": "set after the start, when the process has a number",
    "SLURM_UMASK": "of the shell that submitted",
    "SLURM_WORKING_CLUSTER": "the site's controller",
    "ZE_AFFINITY_MASK": "Intel's name for what CUDA_VISIBLE_DEVICES says",
}
"""Variables that the simulation leaves out, each with the reason."""

OWN_VALUE = {
    "SLURM_CLUSTER_NAME": "the simulation says that it is one",
    "SLURM_JOB_END_TIME": "when it ran",
    "SLURM_JOB_GID": "who ran it",
    "SLURM_JOB_GROUP": "who ran it",
    "SLURM_JOB_NAME": "the simulation says that it is one",
    "SLURM_JOB_PARTITION": "the simulation says that it is one",
    "SLURM_JOB_START_TIME": "when it ran",
    "SLURM_JOB_UID": "who ran it",
    "SLURM_JOB_USER": "who ran it",
    "SLURM_LAUNCH_NODE_IPADDR": "the simulation's node names are addresses",
    "SLURM_SRUN_COMM_HOST": "the simulation's node names are addresses",
    "SLURM_SUBMIT_DIR": "where it was submitted",
    "SLURM_SUBMIT_HOST": "where it was submitted",
}
"""Variables whose value is that of the place, each with the reason."""

UNEQUAL = {
    "SLURM_CPUS_ON_NODE": "Slurm allots the last node as many CPUs as the others",
    "SLURM_JOB_CPUS_PER_NODE": "Slurm allots the last node as many CPUs as the others",
    "SLURM_NTASKS_PER_NODE": "with --ntasks it is the most tasks of a node, which the recorded job had to ask for",
}
"""What differs in an unequal layout only, since it was asked for with --ntasks=11 --ntasks-per-node=4."""


def differences(generation: str) -> list[str]:
    """List where the simulated environments of a generation are not the recorded ones."""
    data = json.loads((RECORDED / f"{generation}.json").read_text(encoding="utf-8"))
    found = []
    for entry in data["layouts"]:
        real, layout = entry["tasks"], entry["layout"]
        job = Job(
            job_id=int(real[0]["SLURM_JOB_ID"]),
            nodes=tuple(expand_hostlist(real[0]["SLURM_STEP_NODELIST"])),
            tasks_per_node=tuple(expand_tasks(real[0]["SLURM_STEP_TASKS_PER_NODE"])),
            cpus_per_task=layout.get("cpus_per_task"),
            gpus_per_node=layout.get("gpus_per_node", 0),
            uniform=isinstance(layout["ntasks_per_node"], int),
            generation=generation,
            directory=Path("/home"),
        )
        excused = {**NOT_SIMULATED, **OWN_VALUE, **({} if job.uniform else UNEQUAL)}
        for task, wanted in zip(job.tasks(), real, strict=True):
            given = step_environment(task)
            names = set(given) ^ set(wanted) | {
                name for name in set(given) & set(wanted) if given[name] != wanted[name]
            }
            found += [
                f"{entry['sbatch']} {task.rank}: {name} is {given.get(name)!r}, recorded {wanted.get(name)!r}"
                for name in sorted(names - set(excused))
            ]
            if str(cpu_devices(task)) != wanted["JAX_NUM_CPU_DEVICES"]:
                found.append(
                    f"rank {task.rank} has {cpu_devices(task)} devices, recorded {wanted['JAX_NUM_CPU_DEVICES']}"
                )
    return found


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_simulation_gives_what_was_recorded(generation):
    """Each task of each recorded layout has the variables of the real srun, in the same form."""
    assert not differences(generation)


def test_a_variable_of_another_generation_is_found(monkeypatch):
    """A variable that a generation does not set, or a changed form, shows as a difference."""
    from srunbook.simulate import _environment

    monkeypatch.setitem(_environment.VARIABLES, "SLURM_PROCID", _environment.Variable(lambda task: f"rank {task.rank}"))
    monkeypatch.setitem(_environment.VARIABLES, "SLURM_UNHEARD_OF", _environment.Variable(lambda _: 1))
    found = differences("22.05")

    assert any("SLURM_PROCID is 'rank 0', recorded '0'" in line for line in found)
    assert any("SLURM_UNHEARD_OF" in line for line in found)


def test_no_excuse_outlives_its_reason():
    """Every variable that is excused occurs in a recording, so that the lists do not grow old."""
    names = set()
    for path in RECORDED.glob("*.json"):
        for entry in json.loads(path.read_text(encoding="utf-8"))["layouts"]:
            names |= {name for task in entry["tasks"] for name in task}

    assert {*NOT_SIMULATED, *OWN_VALUE, *UNEQUAL} <= names
