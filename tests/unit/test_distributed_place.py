"""Which process of how many this is, from arguments and environments that srun gives."""

from __future__ import annotations

import os

import pytest

from srunbook.distributed import DistributedError, find_place
from srunbook.distributed.place import derived_port

STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "rack0n[01-02]-ib",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NTASKS": "4",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_CPUS_PER_TASK": "3",
}
"""The third of four tasks on two nodes, whose names JAX itself reads wrongly."""


def test_step():
    """In a step, srun's variables say who this is, and the first host of the list is the coordinator."""
    place = find_place(STEP)

    assert (place.process_id, place.num_processes) == (2, 4)
    assert place.coordinator_address == "rack0n01-ib:61457"


def test_steps_of_a_job_do_not_meet():
    """Two steps of a job, and the first steps of the next jobs, have ports of their own."""
    ports = {derived_port(job, step) for job in range(1000, 1020) for step in range(4)}

    assert len(ports) == 80
    assert 61440 <= min(ports) < max(ports) <= 65535


def test_single():
    """Without Slurm and without arguments there is one process, with a device for each CPU that it may use."""
    place = find_place({})

    assert (place.process_id, place.num_processes) == (0, 1)
    assert place.coordinator_address is None
    assert place.cpu_devices == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("environ", "arguments", "address"),
    [
        ({"SLURM_COORDINATOR_ADDRESS": "n9", "JAX_COORDINATOR_PORT": "12345"}, {}, "n9:12345"),
        ({"JAX_COORDINATOR_ADDRESS": "n8:5002", "SLURM_COORDINATOR_ADDRESS": "n9"}, {}, "n9:61457"),
        ({"SLURM_COORDINATOR_ADDRESS": "n9"}, {"coordinator_address": "n7:5003"}, "n7:5003"),
    ],
)
def test_coordinator(environ, arguments, address):
    """Arguments go before SLURM_COORDINATOR_ADDRESS, that before JAX's variables, and these before the host list."""
    place = find_place({**STEP, **environ}, **arguments)

    assert place.coordinator_address == address


@pytest.mark.parametrize(
    ("environ", "argument", "devices"),
    [
        (STEP, None, 3),
        ({**STEP, "SLURM_CPUS_PER_TASK": "", "SLURM_CPUS_ON_NODE": "8"}, None, 4),
        ({**STEP, "XLA_FLAGS": "--xla_a=1 --xla_force_host_platform_device_count=8"}, None, None),
        ({**STEP, "JAX_NUM_CPU_DEVICES": "5"}, 2, 2),
    ],
)
def test_cpu_devices(environ, argument, devices):
    """The argument counts, then what JAX reads by itself, then the CPUs of the task."""
    assert find_place(environ, cpu_devices=argument).cpu_devices == devices


FOUR = {**STEP, "SLURM_GPUS_ON_NODE": "4"}


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        (STEP, None),
        ({**FOUR, "CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, (2, 3)),
        ({**FOUR, "CUDA_VISIBLE_DEVICES": "3"}, None),
        ({**FOUR, "JAX_LOCAL_DEVICE_IDS": "1,3"}, None),
        ({**FOUR, "SLURM_GPUS_ON_NODE": "3", "JAX_PLATFORMS": "cpu"}, None),
    ],
)
def test_gpus(environ, ids):
    """A task takes its even share of the GPUs that it sees, and all of them where Slurm has shared them out."""
    assert find_place(environ).local_device_ids == ids


@pytest.mark.parametrize(
    ("environ", "arguments", "message"),
    [
        ({"SLURM_JOB_ID": "17"}, {}, r"SLURM_PROCID.* not set.*srun python train\.py"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, {}, r"4 tasks.*srun"),
        ({**STEP, "SLURM_PROCID": "0"}, {}, r"rank 0 runs on .*02-ib.*export SLURM_COORDINATOR.*=rack0n02-ib"),
        ({**STEP, "JAX_COORDINATOR_PORT": "70000"}, {}, r"port '70000': .* from 1024 to 65535"),
        ({**STEP, "SLURM_COORDINATOR_ADDRESS": "http://n1"}, {}, r"'http://n1'.*SLURM_COORDINATOR_ADDRESS"),
        ({**FOUR, "SLURM_GPUS_ON_NODE": "3"}, {}, r"SLURM_GPUS_ON_NODE=3.*--gpus-per-node=3"),
        ({}, {"coordinator_address": "n1:5000"}, r"both.*srun python"),
        ({}, {"num_processes": 2, "process_id": 1}, r"coordinator_address=None: .*host:port"),
    ],
)
def test_refused(environ, arguments, message):
    """What cannot be right is rejected, with the variable and what to write."""
    with pytest.raises(DistributedError, match=message):
        find_place(environ, **arguments)


def test_arguments_inside_of_a_job():
    """In a batch script, an explicit single process is possible."""
    assert find_place({"SLURM_JOB_ID": "17"}, num_processes=1).process_id == 0
