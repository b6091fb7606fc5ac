"""The environment of a step."""

from __future__ import annotations

import pytest

from srunbook.slurm import NotInStepError, SlurmParseError, StepEnvironment

STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "rack0n[01-03]",
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_NTASKS": "11",
    "SLURM_TASKS_PER_NODE": "4(x2),3",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
}
BATCH_SHELL = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
}


def test_reads_a_step():
    """A task finds its place in a step of unequal nodes."""
    step = StepEnvironment.from_environ(STEP)

    assert (step.rank, step.world_size, step.local_rank, step.local_world_size) == (9, 11, 1, 3)
    assert (step.node_id, step.node, step.coordinator) == (2, "rack0n03", "rack0n01")
    assert (step.job_id, step.step_id, step.restart_count) == (17, 2, 0)
    assert step.tasks_per_node == (4, 4, 3)
    assert step.cpus_per_task is None
    assert step.gpus_on_node == 0


def test_reads_this_process(monkeypatch):
    """Without an argument it reads the environment of this process."""
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)

    assert StepEnvironment.from_environ().rank == 9


def test_a_step_smaller_than_its_job():
    """The step's own numbers go before the job's."""
    job = {"SLURM_NTASKS": "64", "SLURM_TASKS_PER_NODE": "16(x4)", "SLURM_JOB_NODELIST": "other[1-4]"}

    step = StepEnvironment.from_environ(STEP | job)

    assert step.world_size == 11
    assert step.tasks_per_node == (4, 4, 3)


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_NODE": "a100:8"}, 4),
        ({"SLURM_GPUS_PER_NODE": "a100:4"}, 4),
        ({"SLURM_GPUS_PER_NODE": "4"}, 4),
        ({"SLURM_GPUS_PER_NODE": "a100:2,h100:2"}, 4),
        ({"SLURM_GPUS_ON_NODE": ""}, 0),
    ],
)
def test_gpus(variables, gpus):
    """GPUs of the node come from SLURM_GPUS_ON_NODE, else from the request, with types or without."""
    assert StepEnvironment.from_environ(STEP | variables).gpus_on_node == gpus


def test_optional_numbers():
    """CPUs per task and restarts are read where they are set."""
    step = StepEnvironment.from_environ(STEP | {"SLURM_CPUS_PER_TASK": "8", "SLURM_RESTART_COUNT": "3"})

    assert (step.cpus_per_task, step.restart_count) == (8, 3)


def test_outside_slurm():
    """Outside a job the message says so, and names srun and the simulation."""
    with pytest.raises(NotInStepError, match=r"not part of a Slurm job.*srun.*srunbook simulate"):
        StepEnvironment.from_environ({"HOME": "/home/ada"})


def test_in_the_batch_shell():
    """In the script of a job the message says that srun is missing, though SLURM_PROCID is set there."""
    with pytest.raises(NotInStepError, match=r"SLURM_STEP_ID, SLURM_STEP_NODELIST not set.*srun python train.py"):
        StepEnvironment.from_environ(BATCH_SHELL)


@pytest.mark.parametrize("name", ["SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"])
def test_cut_down_environment(name):
    """A variable missing in both its names is named."""
    environ = {key: value for key, value in STEP.items() if key not in (name, name.replace("STEP_NUM_", "N"))}
    environ.pop(name.replace("STEP_", ""), None)

    with pytest.raises(NotInStepError, match=name):
        StepEnvironment.from_environ(environ)


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID 'x'"),
        ({"SLURM_PROCID": "-1"}, "SLURM_PROCID '-1'"),
        ({"SLURM_PROCID": "9" * 5000}, "SLURM_PROCID '999"),
        ({"SLURM_PROCID": "²"}, "SLURM_PROCID '²'"),
        ({"SLURM_STEP_NODELIST": f"n[{'9' * 5000}]"}, "host list 'n[999"),
        ({"SLURM_STEP_NODELIST": "n[1-2"}, "nothing closes"),
        ({"SLURM_STEP_NODELIST": "n[1-2]"}, "3 nodes have tasks, but 2 nodes are named"),
        ({"SLURM_STEP_NUM_TASKS": "12"}, "11 tasks together, not 12"),
        ({"SLURM_PROCID": "11"}, "no such rank"),
        ({"SLURM_NODEID": "3"}, "no node 3"),
        ({"SLURM_LOCALID": "3"}, "local rank 3 on a node of 3 tasks"),
    ],
)
def test_contradictions(variables, problem):
    """What cannot be one step is refused."""
    with pytest.raises(SlurmParseError, match=problem.replace("[", r"\[")):
        StepEnvironment.from_environ(STEP | variables)
