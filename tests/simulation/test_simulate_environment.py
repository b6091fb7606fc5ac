"""The environment of the tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook import simulate
from srunbook.simulate._environment import VARIABLES, Job, base_environment, cpu_devices, step_environment
from srunbook.slurm import StepEnvironment, compress_tasks

SHOW = ["sh", "-c", 'eval "echo $0"']


def job(tasks_per_node=(2, 2), **changes):
    """Make a job on as many nodes as the layout has."""
    values = {
        "job_id": 17,
        "nodes": tuple(f"127.0.0.{number + 1}" for number in range(len(tasks_per_node))),
        "tasks_per_node": tuple(tasks_per_node),
        "cpus_per_task": None,
        "gpus_per_node": 0,
        "uniform": len(set(tasks_per_node)) == 1,
        "generation": "22.05",
        "directory": Path("/home/ada"),
    }
    return Job(**(values | changes))


@pytest.mark.parametrize(("gpus", "tasks", "devices"), [(0, 2, 1), (4, 2, 2), (4, 3, 1)])
def test_cpu_devices(gpus, tasks, devices):
    """JAX shows a task the GPUs of its node divided by the tasks on it, and one without GPUs."""
    assert cpu_devices(job((tasks,), gpus_per_node=gpus).tasks()[0]) == devices


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.sampled_from(simulate.GENERATIONS))
def test_srunbook_slurm_reads_it(layout, generation):
    """srunbook.slurm reads back from each task's environment what the task is."""
    a_job = job(layout, generation=generation)

    for task in a_job.tasks():
        step = StepEnvironment.from_environ(step_environment(task))

        assert (step.rank, step.local_rank, step.node_id) == (task.rank, task.local_rank, task.node_id)
        assert (step.nodes, step.tasks_per_node) == (a_job.nodes, tuple(layout))
        assert step.node == task.node


def test_surrounding_variables_are_dropped():
    """Variables of a surrounding job, launcher or rank do not reach the tasks; others do."""
    foreign = [
        "SLURM_PROCID SLURMD_NODENAME SBATCH_PARTITION SRUN_CPUS_PER_TASK SALLOC_ACCOUNT JAX_COORDINATOR_ADDRESS",
        "JAX_NUM_CPU_DEVICES MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK TORCHELASTIC_RUN_ID PET_NNODES",
        "PMI_RANK PMIX_RANK OMPI_COMM_WORLD_RANK MPI_LOCALRANKID PBS_NODEFILE LSB_JOBID FLUX_TASK_RANK",
    ]
    names = " ".join(foreign).split()
    kept = {"PATH": "/bin", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "2", "RANKS": "3", "MPI_HOME": "/mpi"}

    assert base_environment(dict.fromkeys(names, "1") | kept) == kept


def test_each_process_has_the_table(program):
    """A real process finds in its environment exactly the variables of the table, and SLURM_TASK_PID is its own."""
    command = program("import json, os; print(json.dumps(dict(os.environ) | {'pid': str(os.getpid())}))")

    result = simulate.run(command, nodes=3, ntasks_per_node="2(x2),1", slurm="26.05", gpus_per_node=2)

    for task in job((2, 2, 1), job_id=result.job_id, generation="26.05", gpus_per_node=2).tasks():
        environ = json.loads(result.ranks[task.rank].output)
        slurm = {name: value for name, value in environ.items() if name.startswith(("SLURM", "CUDA"))}
        expected = step_environment(task) | {"SLURM_SUBMIT_DIR": str(Path.cwd()), "SLURM_TASK_PID": environ["pid"]}
        times = ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")

        assert {**slurm, **dict.fromkeys(times)} == {**expected, **dict.fromkeys(times)}
        assert result.ranks[task.rank].node == task.node
        assert slurm["SLURM_TASKS_PER_NODE"] == compress_tasks([2, 2, 1])


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "slurm-variables.md"


def documented():
    """Map each variable of the reference page to the text that describes it."""
    entries = re.findall(r"^((?:`\w+`(?:, )?)+)\n: (.*)$", PAGE.read_text(), re.MULTILINE)
    return {name: text for names, text in entries for name in re.findall(r"`(\w+)`", names)}


def test_every_variable_has_an_entry_in_the_reference():
    """The page of Slurm variables describes every variable that the simulation sets."""
    assert set(VARIABLES) | {"SLURM_TASK_PID"} <= set(documented())


def test_the_examples_of_the_reference():
    """The examples on that page are what the simulation sets for the task that the page describes."""
    nodes = ("rack0n01", "rack0n02", "rack0n03")
    the_job = job((4, 4, 3), nodes=nodes, cpus_per_task=2, gpus_per_node=4)
    values = step_environment(the_job.tasks()[9]) | {"SLURM_TRES_PER_TASK": "cpu=2", "SLURM_OOM_KILL_STEP": "0"}

    shown = {name: re.match(r"(?:\*.*?\*:? )?`([^`]*)`", text) for name, text in documented().items()}

    compared = {name: match[1] for name, match in shown.items() if match and name in values}
    assert compared == {name: values[name] for name in compared}
    assert len(compared) > 30
