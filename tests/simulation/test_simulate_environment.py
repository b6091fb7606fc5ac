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


def test_a_task_of_an_unequal_layout():
    """A task on the last node of `4(x2),3` is told what srun would tell it."""
    environ = step_environment(job((4, 4, 3)).tasks()[9])

    expected = {
        "SLURM_PROCID": "9",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "2",
        "SLURM_GTIDS": "8,9,10",
        "SLURMD_NODENAME": "127.0.0.3",
        "SLURM_NTASKS": "11",
        "SLURM_NPROCS": "11",
        "SLURM_STEP_NUM_TASKS": "11",
        "SLURM_TASKS_PER_NODE": "4(x2),3",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2),3",
        "SLURM_CPUS_ON_NODE": "3",
        "SLURM_NNODES": "3",
        "SLURM_JOB_NODELIST": "127.0.0.[1-3]",
        "SLURM_STEP_NODELIST": "127.0.0.[1-3]",
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_ID": "17",
        "SLURM_JOBID": "17",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "SLURM_SUBMIT_DIR": "/home/ada",
    }
    assert environ.items() >= expected.items()


@pytest.mark.parametrize("name", ["SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_ON_NODE"])
def test_only_where_asked(name):
    """Without a request, SLURM_NTASKS_PER_NODE, SLURM_CPUS_PER_TASK and the GPU variables are not set."""
    without = step_environment(job((2, 1)).tasks()[0])
    asked = step_environment(job((2, 2), cpus_per_task=2, gpus_per_node=2).tasks()[0])

    assert name not in without
    assert asked[name] == "2"


def test_gpus():
    """GPUs that were asked for are counted and numbered, on a node that has them all."""
    environ = step_environment(job((2, 2), gpus_per_node=4).tasks()[3])

    gpus = {"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_NODE": "4", "SLURM_STEP_GPUS": "0,1,2,3"}
    assert environ.items() >= (gpus | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}).items()


def test_a_user_without_a_name(monkeypatch):
    """In a container whose user has no name, the number stands for it."""
    monkeypatch.setattr("os.getuid", lambda: 424242)
    monkeypatch.setattr("os.getgid", lambda: 424243)

    environ = step_environment(job(generation="26.05").tasks()[0])

    assert (environ["SLURM_JOB_USER"], environ["SLURM_JOB_GROUP"]) == ("424242", "424243")


@pytest.mark.parametrize(("gpus", "tasks", "devices"), [(0, 2, 1), (4, 2, 2), (4, 1, 4), (4, 3, 1), (1, 2, 1)])
def test_cpu_devices(gpus, tasks, devices):
    """JAX shows a task the GPUs of its node divided by the tasks on it, and one without GPUs."""
    assert cpu_devices(job((tasks,), gpus_per_node=gpus).tasks()[0]) == devices


@pytest.mark.parametrize(
    ("name", "generations"),
    [
        ("SLURM_TRES_PER_TASK", {"24.11", "26.05"}),
        ("SLURM_NODE_ALIASES", {"22.05"}),
        ("SLURM_PROCID", {"22.05", "24.11", "26.05"}),
    ],
)
def test_generations(name, generations):
    """A variable is set in the generations that the table gives for it, and in no other."""
    jobs = {generation: job(generation=generation, cpus_per_task=2) for generation in simulate.GENERATIONS}

    assert {generation for generation, j in jobs.items() if name in step_environment(j.tasks()[0])} == generations


def test_generations_of_the_table():
    """Every row of the table names generations that exist, in their order."""
    known = simulate.GENERATIONS

    assert all(known.index(row.since) <= known.index(row.until) for row in VARIABLES.values())


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
        "SLURM_PROCID SLURM_JOB_NAME SLURM_NTASKS_PER_NODE SLURM_CPUS_PER_TASK SLURMD_NODENAME SBATCH_PARTITION",
        "SRUN_CPUS_PER_TASK SALLOC_ACCOUNT PMI_RANK PMIX_RANK PMI2_X PALS_RANKID OMPI_COMM_WORLD_RANK",
        "JAX_COORDINATOR_ADDRESS JAX_COORDINATOR_PORT JAX_NUM_CPU_DEVICES JAX_LOCAL_DEVICE_IDS JAX_PROCESS_ID",
        "MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK ROLE_RANK",
        "TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE PET_NNODES",
        "MPI_LOCALRANKID MPI_LOCALNRANKS MV2_COMM_WORLD_RANK I_MPI_HYDRA_HOST_FILE HYDI_CONTROL_FD PRTE_LAUNCHED",
        "PMI_FD PMIX_NAMESPACE ORTE_LAUNCHED MPIRUN_RANK MPIEXEC_HOSTNAME MPICH_RANK_REORDER_METHOD MVP_X",
        "FLUX_TASK_RANK FLUX_URI PBS_NODEFILE PBS_O_WORKDIR LSB_MCPU_HOSTS LSB_JOBID JSM_NAMESPACE_RANK",
    ]
    names = " ".join(foreign).split()
    kept = {
        "PATH": "/bin",
        "JAX_PLATFORMS": "cpu",
        "MY_RANK": "1",
        "OMP_NUM_THREADS": "2",
        "RANKS": "3",
        "MPI_HOME": "/mpi",
        "I_MPI_ROOT": "/impi",
    }

    assert base_environment(dict.fromkeys(names, "1") | kept) == kept


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ("--xla_force_host_platform_device_count=8", None),
        ("--xla_a=1 --xla_force_host_platform_device_count=8 --xla_b=2", "--xla_a=1 --xla_b=2"),
        ("--xla_a=1", "--xla_a=1"),
    ],
)
def test_xla_flags(flags, left):
    """XLA_FLAGS loses its device count and nothing else."""
    assert base_environment({"XLA_FLAGS": flags}).get("XLA_FLAGS") == left


def test_nothing_leaks_into_a_process(monkeypatch):
    """A process started from inside another job sees its own step only."""
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("SLURM_JOB_ACCOUNT", "someone")
    monkeypatch.setenv("RANK", "7")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "8")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

    command = [*SHOW, "p=$SLURM_PROCID a=$SLURM_JOB_ACCOUNT r=$RANK x=$XLA_FLAGS d=$JAX_NUM_CPU_DEVICES"]
    result = simulate.run(command, nodes=2, gpus_per_node=2)

    assert result.output == "[0] p=0 a= r= x= d=2\n[1] p=1 a= r= x= d=2"


def test_own_variables_win():
    """Variables given to run() win over what the simulation sets."""
    result = simulate.run(
        [*SHOW, "$JAX_NUM_CPU_DEVICES $MASTER_PORT"], env={"JAX_NUM_CPU_DEVICES": "3", "MASTER_PORT": "5"}
    )

    assert result.ranks[0].output == "3 5"


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
