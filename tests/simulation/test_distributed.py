"""initialize_distributed() in processes with the environment that srun gives."""

from __future__ import annotations

import functools
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.hanging import HUNG, WATCH
from support.ports import free_port

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
say(rank=info.process_id, world=info.num_processes, local=info.local_device_count, everywhere=info.global_device_count,
    devices=len(info.local_devices), address=info.coordinator_address, first=info.is_coordinator, source=info.source,
    total=int(total), same=initialize_distributed() is info)
"""


def run_ranks(folder, source, *argv, **options):
    """Run a program from a folder on two nodes, without killing the rest when one process fails.

    Returns:
        The result, and what each rank said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(PROGRAM + source)
    options = {"nodes": 2, "kill_on_bad_exit": False, **options}
    result = simulate.run([sys.executable, str(folder / "program.py"), *argv], **options)
    # No ^ before it: a greeting of gloo, which comes in pieces, may stand before it on the line.
    said = [[json.loads(text) for text in re.findall(r"said (\{.*)$", rank.output, re.M)] for rank in result.ranks]
    return result, said


@pytest.fixture
def ranks(tmp_path):
    """Run a program on two nodes, without killing the rest when one process fails; return what each said."""
    return functools.partial(run_ranks, tmp_path)


@pytest.fixture(scope="module")
def waiting(request, tmp_path_factory):
    """Run side by side what mostly waits: the cases of `WAITING` that this session will need, four at a time."""
    names = [item.callspec.params["name"] for item in request.session.items if is_waiting(item, request.path)]
    place = tmp_path_factory.mktemp("waiting")
    with ThreadPoolExecutor(4) as pool:
        yield {
            name: pool.submit(run_ranks, place / str(number), source, *argv, **options)
            for number, name in enumerate(dict.fromkeys(names))
            for source, argv, options in [WAITING[name]]
        }


def is_waiting(item, path):
    """Return whether a test takes its result from `waiting`."""
    return item.path == path and "waiting" in item.fixturenames


def test_step(ranks):
    """In a step of two nodes with two tasks each, all four find each other, and the devices are those of the rule."""
    result, said = ranks(SAY, ntasks_per_node=2, gpus_per_node=4)

    assert result.returncode == 0, result.failure
    first = {"world": 4, "local": 2, "everywhere": 8, "devices": 2, "source": "slurm", "total": 4, "same": True}
    ((address, *others),) = {tuple(one["address"] for (one,) in said)}
    assert set(others) == {address}
    assert address.startswith("127.0.0.1:")
    for rank in range(4):
        assert said[rank] == [{**first, "rank": rank, "first": rank == 0, "address": address}]


@pytest.mark.full
def test_cpus_of_the_task(ranks):
    """Where nothing else says how many, a process has a CPU device for each CPU of its task."""
    result, said = ranks("del os.environ['JAX_NUM_CPU_DEVICES']\n" + SAY, cpus_per_task=3)

    assert result.returncode == 0, result.failure
    assert [one["local"] for (one,) in said] == [3, 3]


def test_single(ranks):
    """A single process outside of Slurm has no coordinator and works like the others."""
    outside = 'for name in list(os.environ):\n    if name.startswith("SLURM"):\n        del os.environ[name]\n'
    result, said = ranks(outside + SAY, nodes=1)

    assert result.returncode == 0, result.failure
    assert said[0][0]["source"] == "single"
    assert said[0][0]["address"] is None


def test_arguments(ranks):
    """Explicit arguments are enough where srun's variables are missing."""
    source = """
for name in list(os.environ):
    if name.startswith("SLURM"):
        del os.environ[name]
info = initialize_distributed(coordinator_address=sys.argv[1], num_processes=2, process_id=rank, timeout=600)
say(rank=info.process_id, everywhere=info.global_device_count, source=info.source)
"""
    with fresh_job_id(["127.0.0.1"]) as job_id:  # its port is one that no other simulation has
        result, said = ranks(source, f"127.0.0.1:{derived_ports(job_id)[0]}")

    assert result.returncode == 0, result.failure
    assert said == [[{"rank": rank, "everywhere": 2, "source": "arguments"}] for rank in range(2)]


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


@pytest.mark.parametrize(
    ("how", "victim"),
    [
        ("raise", 0),
        ("plain", 1),
        ("exit", 0),
        ("kill", 0),
        pytest.param("raise", 1, marks=pytest.mark.full),
        pytest.param("kill", 1, marks=pytest.mark.full),
    ],
)
def test_one_rank_fails(ranks, how, victim):
    """When one rank raises, leaves or is killed, the other ends at once, with a status and the reason."""
    result, said = ranks(FAILS, how, str(victim))

    other = result.ranks[1 - victim]
    assert said == [[], []]
    assert not result.timed_out
    assert other.returncode not in (0, None)
    if how == "kill":  # JAX alone would notice after 100 s
        assert f"rank {victim} on 127.0.0.{victim + 1} ended without a word" in other.output
    else:
        assert f"rank {victim} on 127.0.0.{victim + 1} failed:" in other.output
        assert "no data" in result.ranks[victim].stderr
    if how in ("raise", "plain"):
        assert "ValueError: no data" in other.output
        assert result.ranks[victim].stderr.count("ValueError: no data") == 1


SECONDS = 5
"""The timeout of the calls below that have to wait in vain."""

NOBODY = f"127.0.0.1:{free_port()}"
"""Where nobody listens."""

CALL = """
import jax
from srunbook.distributed import DistributedError

def call(**arguments):
    return initialize_distributed(**{"timeout": SECONDS, **arguments})

def short(name):
    # The time for one step of the start begins with that step, and is short.
    from srunbook.distributed import _start
    def within(deadline, step, real=_start.call_within):
        return real(_start.Deadline.after(SECONDS) if step.__name__ == name else deadline, step)
    _start.call_within = within

def server(silent):
    import socket, threading
    server = socket.create_server(("127.0.0.1", 0))
    os.environ["SLURM_COORDINATOR_ADDRESS"] = f"127.0.0.1:{server.getsockname()[1]}"
    kept = []
    def accept():
        while True:
            kept.append(server.accept()[0])
            if not silent:
                kept.pop().close()
    threading.Thread(target=accept, daemon=True).start()
"""

BEFORE_THE_START = [
    ("del os.environ['SLURM_PROCID']\ncall()", r"SLURM_PROCID not set.*srun python"),
    (
        "del os.environ['SLURM_JOB_ID']\nos.environ.pop('SLURM_JOBID', None)\ncall()",
        r"SLURM_JOB_ID is not: half of a Slurm environment.*srun python",
    ),
    ("os.environ['SLURM_HET_SIZE'] = '2'\ncall()", r"SLURM_HET_SIZE.*srun --het-group=0"),
    ("call(timeout='3')", r"timeout='3': it is a number of seconds.*timeout=120.*srun"),
    ("call(timeout=0)", r"timeout=0: it is a number of seconds.*timeout=120"),
    (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\ncall(cpu_devices=16)",
        r"16 CPU devices in each of 2 processes need 512 connections .* 300 files \(ulimit -Hn\)"
        r".*cpu_devices=8\).*JAX_NUM_CPU_DEVICES=8; srun.*--set devices_per_process=8\.",
    ),
    (
        "import jax.numpy as jnp\njnp.zeros(3)\ncall()",
        r"JAX was used before initialize_distributed\(\).*SLURM_NTASKS.*srun",
    ),
]
"""Wrong uses that are found before a process waits for another, each with what it says."""


def test_errors_before_the_start(ranks):
    """A wrong use that needs no other process to be seen raises at once, and names the variable and the line."""
    one_by_one = """
import traceback
environ = dict(os.environ)
for source in json.loads(sys.argv[1]) if rank == 0 else []:
    try:
        exec(source)
    except DistributedError as error:
        say(error=str(error))
    os.environ.clear()
    os.environ.update(environ)
"""
    sources = json.dumps([source for source, _ in BEFORE_THE_START])
    result, (said, _) = ranks(f"SECONDS = {SECONDS}\n{CALL}{one_by_one}", sources)

    assert len(said) == len(BEFORE_THE_START), result.output
    for (_, message), error in zip(BEFORE_THE_START, said, strict=True):
        assert re.search(message, error["error"])


ERRORS = {
    "after JAX's own call": (
        "jax.distributed.initialize()\ncall()",
        {},
        r"jax\.distributed\.initialize\(\) was called before.*srun",
    ),
    "unreachable coordinator": (
        "call() if rank else sys.exit(3)",
        {"SLURM_COORDINATOR_ADDRESS": NOBODY},
        rf"rank 1 .*did not reach rank 0 at {NOBODY} within 5 s: nobody.*SLURM_COORDINATOR_ADDRESS.*srun",
    ),
    "unknown name": (
        "call() if rank else sys.exit(3)",
        {"SLURM_COORDINATOR_ADDRESS": "no-such-host.invalid"},
        r"rank 1 .*did not reach rank 0 at no-such-host\.invalid:\d+ within 5 s: (the name|nothing answers).*srun",
    ),
    "a silent server": (
        "server(silent=True)\ncall() if rank else sys.exit(3)",
        {},
        r"did not reach rank 0 .* within 5 s: something else listens there, and is silent.*srun",
    ),
    "a server that hangs up": (
        "server(silent=False)\ncall() if rank else sys.exit(3)",
        {},
        r"did not reach rank 0 .* within 5 s: something else listens there\..*srun",
    ),
    "a port in use": (
        "server(silent=True)\nsys.exit(3) if rank else call()",
        {},
        r"port \d+ of 127\.0\.0\.1, on which rank 0 waits for the others, is in use; .*JAX_COORDINATOR_PORT",
    ),
    "fewer processes than tasks": (
        "sys.exit(3) if rank else call()",
        {},
        r"SLURM_NTASKS=2, but 1 of 2 processes came .* within 5 s; missing: rank 1 on 127\.0\.0\.2.*srun --ntasks=2",
    ),
    "JAX hangs on rank 0": (
        "if rank == 0:\n    short('initialize')\n    jax.distributed.initialize = lambda **_: time.sleep(3600)\n"
        "call(timeout=600)",
        {},
        r"rank 0 met the others at \S+, but JAX did not start: it was not through within 5 s.*JAX_COORDINATOR_PORT",
    ),
    "JAX fails on rank 0": (
        "if rank == 0:\n    jax.distributed.initialize = lambda **_: 1 / 0\ncall(timeout=600)",
        {},
        r"rank 0 met the others at \S+, but JAX did not start: division by zero.*srun",
    ),
    "JAX finds no devices": (
        "def devices():\n    time.sleep(3600)\njax.devices = devices\nshort('devices')\ncall(timeout=600)",
        {},
        r"rank \d met the others at \S+, but JAX has not found the devices of all: .* within 5 s.*srun --exclude",
    ),
    "other arguments in the second call": (
        "initialize_distributed(timeout=600)\ncall(port=5000)",
        {},
        r"was called before with no arguments, and now with \{'port': 5000\}",
    ),
}


ONLY_FULL = ("unknown name", "a silent server", "a server that hangs up")
"""Cases that the tests of the rendezvous have with threads."""

WAITING = {
    name: (f"SECONDS = {SECONDS}\n{CALL}{source}", (), {"env": environ})
    for name, (source, environ, _) in ERRORS.items()
}
WAITING["JAX alone"] = (
    WATCH
    + FAILS.replace("initialize_distributed(timeout=600)", "__import__('jax').distributed.initialize()").replace(
        "    if rank == victim:\n", "    expect_hang()\n    if rank == victim:\n"
    ),
    ("plain", "1"),
    {},
)


@pytest.mark.parametrize("name", ["JAX alone"])
def test_without_the_monitor(waiting, name):
    """With JAX alone, the same exception leaves the other rank waiting."""
    result, said = waiting[name].result()

    assert said == [[], []]
    assert HUNG in result.ranks[0].output


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if name in ONLY_FULL else []) for name in ERRORS]
)
def test_errors(waiting, name):
    """Every wrong use ends with an exception that names the variable and the line that mends it."""
    result, _ = waiting[name].result()

    assert not result.timed_out
    assert re.search(f"DistributedError: .*{ERRORS[name][2]}", result.output), result.output
    assert max(rank.returncode for rank in result.ranks) in (1, 3)


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


STEPS = """
node, step = divmod(rank, 2)
os.environ.update(SLURM_STEP_ID=str(step), SLURM_PROCID=str(node), SLURM_NODEID=str(node), SLURM_LOCALID="0")
os.environ.update(SLURM_NTASKS="2", SLURM_STEP_NUM_TASKS="2", SLURM_STEP_TASKS_PER_NODE="1(x2)")
os.environ.update(SLURM_TASKS_PER_NODE="1(x2)")
"""


def test_two_steps_at_once(ranks):
    """Two steps of one job that run at once on the same nodes have ports of their own, and do not mix."""
    result, said = ranks(STEPS + SAY, ntasks_per_node=2)

    assert result.returncode == 0, result.failure
    assert [(one["rank"], one["world"], one["total"]) for (one,) in said] == [
        (0, 2, 2),
        (0, 2, 2),
        (1, 2, 2),
        (1, 2, 2),
    ]
    assert said[0][0]["address"] == said[2][0]["address"]
    assert said[1][0]["address"] == said[3][0]["address"]
    assert said[0][0]["address"] != said[1][0]["address"]


def test_devices_of_a_single_process(ranks):
    """A single process hands the numbers of its GPUs to JAX."""
    source = """
import jax
from jax._src import xla_bridge
jax.config.update("jax_platforms", "")  # GPUs may be there; only CPUs are used here
initialize_distributed(num_processes=1, local_device_ids=[1, 2])
say(visible=xla_bridge.CUDA_VISIBLE_DEVICES.value)
"""
    result, said = ranks(source, nodes=1)

    assert result.returncode == 0, result.failure
    assert said == [[{"visible": "1,2"}]]
