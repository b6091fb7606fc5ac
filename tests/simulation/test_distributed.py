"""initialize_distributed() in processes with the environment that srun gives.

What happens where a rank does not come, and with JAX alone, is in examples/failures/svgd-coordinator-timeout and
jax-rank-exception-hangs.
"""

from __future__ import annotations

import json
import re

import pytest

from srunbook import simulate
from srunbook.simulate._checks import derived_ports, fresh_job_id

pytest.importorskip("jax")

PROGRAM = """
import json, os, signal, sys, time
from srunbook import initialize_distributed

def say(**what):
    sys.stdout.write("said " + json.dumps(what) + "\\n")
    sys.stdout.flush()

def together():
    from jax.experimental import multihost_utils
    multihost_utils.sync_global_devices("together")

rank = int(os.environ.get("SLURM_PROCID", "0"))
"""

SAY = """
info = initialize_distributed(timeout=600)
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
total = multihost_utils.process_allgather(jnp.ones(())).sum()
same = initialize_distributed() is info
say(rank=info.process_id, world=info.num_processes, local=info.local_device_count, everywhere=info.global_device_count,
    address=info.coordinator_address, first=info.is_coordinator, total=int(total), same=same)
"""


@pytest.fixture
def ranks(program):
    """Run a program on two nodes, where no rank kills the others; return the result and what each rank said."""

    def run(source, *argv, **options):
        options = {"nodes": 2, "kill_on_bad_exit": False, **options}
        result = simulate.run([*program(PROGRAM + source), *argv], **options)
        # No ^ before it: a greeting of gloo, which comes in pieces, may stand before it on the line.
        said = [[json.loads(text) for text in re.findall(r"said (\{.*)$", rank.output, re.M)] for rank in result.ranks]
        return result, said

    return run


def test_step(ranks):
    """In a step of two nodes with two tasks each, all four find each other, and the devices are those of the rule."""
    result, said = ranks(SAY, ntasks_per_node=2, gpus_per_node=4)

    assert result.returncode == 0, result.failure
    first = {"world": 4, "local": 2, "everywhere": 8, "total": 4, "same": True}
    ((address, *others),) = {tuple(one["address"] for (one,) in said)}
    assert set(others) == {address}
    assert address.startswith("127.0.0.1:")
    for rank in range(4):
        assert said[rank] == [{**first, "rank": rank, "first": rank == 0, "address": address}]


def test_single(ranks):
    """A single process outside of Slurm has no coordinator and works like the others."""
    outside = 'for name in list(os.environ):\n    if name.startswith("SLURM"):\n        del os.environ[name]\n'
    result, said = ranks(outside + SAY, nodes=1)

    assert result.returncode == 0, result.failure
    assert said[0][0]["world"] == 1
    assert said[0][0]["address"] is None


def test_arguments(ranks):
    """Explicit arguments are enough where srun's variables are missing."""
    source = """
for name in list(os.environ):
    if name.startswith("SLURM"):
        del os.environ[name]
info = initialize_distributed(coordinator_address=sys.argv[1], num_processes=2, process_id=rank, timeout=600)
say(rank=info.process_id, everywhere=info.global_device_count)
"""
    with fresh_job_id(["127.0.0.1"]) as job_id:  # its port is one that no other simulation has
        result, said = ranks(source, f"127.0.0.1:{derived_ports(job_id)[0]}")

    assert result.returncode == 0, result.failure
    assert said == [[{"rank": rank, "everywhere": 2}] for rank in range(2)]


CONTEXT = """
with initialize_distributed(timeout=600) as info:
    together()
    say(inside=rank)
say(outside=rank)
sys.exit(5 if rank == 1 else 0)
"""


def test_context_manager(ranks):
    """After the block the processes are free of each other: each ends by itself, with its own status."""
    result, said = ranks(CONTEXT)

    assert said == [[{"inside": rank}, {"outside": rank}] for rank in range(2)]
    assert [rank.returncode for rank in result.ranks] == [0, 5]
    assert "srunbook:" not in result.output


FAILS = """
how, victim = sys.argv[1], int(sys.argv[2])
def work():
    together()
    if rank == victim:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            sys.exit("no data")
        raise ValueError("no data")
    together()
    say(survived=rank)

if how == "plain":
    initialize_distributed(timeout=600)
    work()
else:
    with initialize_distributed(timeout=600):
        work()
"""


@pytest.mark.parametrize(("how", "victim"), [("plain", 0), ("exit", 1)])
def test_one_rank_fails(ranks, how, victim):
    """A rank that raises or leaves ends at once, with its own error and status, so that srun can end the others."""
    result, said = ranks(FAILS, how, str(victim), kill_on_bad_exit=True)

    assert said == [[], []]
    assert not result.timed_out
    assert result.ranks[victim].returncode == 1
    assert result.ranks[victim].stderr.count("no data") == 1 + (how != "exit")  # the line of the program, and the error


def test_one_rank_is_killed(ranks):
    """Without srun's option, JAX ends the others when the heartbeat of a dead rank stays away."""
    sooner = "from srunbook.distributed import start\nstart.HEARTBEAT_SECONDS = 5\n"
    result, said = ranks(
        sooner + FAILS.replace("    together()\n    say", "    time.sleep(3600)\n    say"), "kill", "1"
    )

    assert said == [[], []]
    assert not result.timed_out
    assert result.ranks[0].returncode not in (0, None)
    assert "another task died" in result.ranks[0].output


BEFORE_THE_START = [
    ("del os.environ['SLURM_PROCID']\ncall()", r"SLURM_PROCID not set.*srun python"),
    (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\ncall(cpu_devices=16)",
        r"16 CPU devices in each of 2 processes need 512 connections .* 300 files \(ulimit -Hn\)"
        r".*JAX_NUM_CPU_DEVICES=8, or .*--set devices_per_process=8$",
    ),
    ("import jax.numpy as jnp\njnp.zeros(3)\ncall(cpu_devices=1)", r"before"),
]
"""Wrong uses that are found before a process waits for another, each with what it says."""


def test_errors_before_the_start(ranks):
    """A wrong use that needs no other process to be seen raises at once, and names the variable and the line."""
    one_by_one = """
environ = dict(os.environ)
for source in json.loads(sys.argv[1]) if rank == 0 else []:
    call = initialize_distributed
    try:
        exec(source)
    except RuntimeError as error:
        say(error=str(error))
    os.environ.clear()
    os.environ.update(environ)
"""
    result, (said, _) = ranks(one_by_one, json.dumps([source for source, _ in BEFORE_THE_START]))

    assert len(said) == len(BEFORE_THE_START), result.output
    for (_, message), error in zip(BEFORE_THE_START, said, strict=True):
        assert re.search(message, error["error"])


def test_as_many_devices_as_fit(ranks):
    """A process opens as many files as its hard limit allows, and so many devices as the error names fit into that."""
    few = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))\n"
    after = """
info = initialize_distributed(cpu_devices=8, timeout=600)
say(everywhere=info.global_device_count, limits=resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    result, said = ranks(few + after)

    assert result.returncode == 0, result.failure
    assert said == [[{"everywhere": 16, "limits": [300, 300]}]] * 2
