"""Every program of the JAX guide in every layout, its job scripts with Slurm's commands stood in for, and its page."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.comparing import Mask
from support.greetings import without_greetings

from srunbook import simulate
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines
from srunbook.simulate import Result

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "jax_multinode"
SCRIPTS = sorted((ROOT / "slurm" / "jax_multinode").glob("*.sbatch"))
RUNGS = ("one_device.py", "data_parallel.py", "resume.py", "requeue.py", "less_memory.py", "step_memory.py")
"""The programs of test_jax_multinode_ladder.py."""

PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("plot_"))
PROGRAMS = [name for name in PROGRAMS if name not in RUNGS]

OF_SEVERAL_DEVICES = ("query_v2.py", "allreduce.py", "allreduce_modern.py")
"""Programs whose output changes most when a process has several devices."""

TOLERANCE = 1e-3
"""Largest relative difference of a loss on one process and on many: float32 sums in another order, 40 steps on."""

LAYOUTS = {
    "1x1": {"nodes": 1, "ntasks_per_node": 1},
    "2x2": {"nodes": 2, "ntasks_per_node": 2},
    "1x4": {"nodes": 1, "ntasks_per_node": 4},
    "2x1, 2 GPUs each": {"nodes": 2, "ntasks_per_node": 1, "gpus_per_node": 2},
}


def expected_lines(program: str, rank: int, world: int, devices: int) -> list[str]:
    """Patterns of lines that a rank has to print, each once."""
    total = world * devices
    here = ", ".join(rf"CpuDevice\(id={2048 * rank + i}\)" for i in range(devices))
    query = [
        rf"# Local devices: \[ {devices} \], \[{here}\]",
        rf"# Global devices: \[ {total} \], \[CpuDevice\(id=0\).*\]",
    ]
    ids = "[0, 1]" if devices == 2 else "[]"
    expected = {
        "query_v1.py": query,
        "query_v2.py": [rf"# GPU numbers of this process: {re.escape(ids)}", *query],
        "allreduce.py": [
            f"Total devices: {total} \\| Devices per task: {devices}",
            rf"Process {rank} has y=\[{' '.join([f'{total}.'] * devices)}\]".replace(".", r"\."),
        ],
        "allreduce_modern.py": [
            rf"Process {rank}: x has shape \({total},\), {devices} of its {total} shards are here",
            rf"Process {rank} has y={total}\.0 with jit \({min(total - 1, 1)} all-reduce\)",
            rf"Process {rank} has y={total}\.0 with shard_map \(1 all-reduce\)",
        ],
        "train_data_parallel.py": [r"step   0 loss [\d.]+", r"step  39 loss [\d.]+"],
        "profile_allreduce.py": [rf"Process {rank}: \d+% of [\d.]+ ms is all-reduce"],
        "draw_owners.py": [
            rf"Process {rank} owns cpu:{2048 * rank + i} with x\[{2 * place}:{2 * place + 2}\]"
            for i in range(devices)
            for place in [rank * devices + i]
        ],
    }
    return expected[program]


def check_lines(program: str, lines: list[str], rank: int, layout: dict[str, int], host: str) -> None:
    """Check that a rank printed what the guide says, between its start line and its end line."""
    world, devices = layout["nodes"] * layout["ntasks_per_node"], layout.get("gpus_per_node", 1)
    for pattern in expected_lines(program, rank, world, devices):
        assert sum(re.fullmatch(pattern, line) is not None for line in lines) == 1, f"{pattern}\n{lines}"
    start, end = parse_rank_lines(lines)
    assert isinstance(start, RankStart)
    assert isinstance(end, RankEnd)
    assert (start.rank, start.world_size, end.rank) == (rank, world, rank)
    assert (start.host, start.device, start.framework) == (host, f"cpu:{2048 * rank}", f"jax-{version('jax')}")
    if program == "train_data_parallel.py":  # a full program prints all fields
        assert (start.local_rank, start.backend) == (rank % layout["ntasks_per_node"], "gloo")
        assert start.pid
        assert start.job
        printed = [float(loss) for loss in re.findall(r"^step +(?:0|39) loss (\S+)$", "\n".join(lines), re.MULTILINE)]
        assert [*printed, end.loss] == pytest.approx([0.62687, 0.1029, 0.1029], rel=0.01)
        assert len(end.params or "") == 12


RUNS = [
    pytest.param(
        *(program, layout),
        marks=[] if name == "2x1, 2 GPUs each" and program in OF_SEVERAL_DEVICES else pytest.mark.full,
        id=f"{name}-{program}",
    )
    for name, layout in LAYOUTS.items()
    for program in PROGRAMS
]
"""The commands of the docstrings run one device for each process, so that only several of them are new here."""


@pytest.mark.parametrize(("program", "layout"), RUNS)
def test_every_rank_prints_its_lines(
    program: str, layout: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the guide runs in every layout without an edit, and every rank prints what the guide says."""
    monkeypatch.chdir(tmp_path)
    result = simulate.run([sys.executable, EXAMPLES / program], **layout)  # type: ignore[arg-type]

    assert result.returncode == 0, result.failure
    assert len(result.ranks) == layout["nodes"] * layout["ntasks_per_node"]
    for rank in result.ranks:
        check_lines(program, without_greetings(rank.output.splitlines()), rank.rank, layout, rank.node)


MASKS = (
    Mask(r"host=\S+", "host=<node>", "node names are loopback addresses, where the platform has several"),
    Mask(r"pid=\d+", "pid=<pid>", "a fresh number for each process"),
    Mask(r"job=\d+", "job=<id>", "a fresh number for each job"),
    Mask(r"params=\w+", "params=<hash>", "processors round in different ways"),
    Mask(r"loss=[\d.]+", "loss=<n>", "processors round in different ways"),
    Mask(r"[\d.]+ ms", "<t> ms", "times differ from run to run"),
    Mask(r"\d+% of", "<n>% of", "it is a ratio of two times"),
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_commands_of_the_docstring_work(program: str, reader: Any, pytestconfig: pytest.Config) -> None:
    """The last command at the top of a program runs it, from a folder of its own, and prints what was recorded."""
    commands = reader.commands(EXAMPLES / program)

    assert commands
    for command in commands if pytestconfig.getoption("--full") else commands[-1:]:
        run = reader.run(EXAMPLES / program, command)
        assert run.status == 0, f"{command}\n{run.text}"
        words = command.partition(" -- ")[0].split()[2:]
        layout = {"nodes": 1, "ntasks_per_node": 1, **reader.layout(words)}
        for rank in range(layout["nodes"] * layout["ntasks_per_node"]):
            lines = [line.partition("] ")[2] for line in run.lines if line.startswith(f"[{rank}] ")]
            host = f"127.0.0.{1 + rank // layout['ntasks_per_node']}"
            check_lines(program, without_greetings(lines), rank, layout, host)
    # The order of the rows of a table is that of their times.
    reader.compare(EXAMPLES / program, run, lambda line: True, [*MASKS, Mask(" +", " ", "column widths")])


def test_more_tasks_than_gpus_are_refused() -> None:
    """Two GPUs for four tasks end query_v2 with a message that has both numbers."""
    result = simulate.run([sys.executable, EXAMPLES / "query_v2.py"], nodes=1, ntasks_per_node=4, gpus_per_node=2)

    assert result.returncode == 1
    assert "ValueError: 2 GPUs cannot be shared evenly by 4 tasks on a node" in result.output


def losses(result: Result) -> np.ndarray:
    """Loss of every step on every rank: an array of shape (ranks, steps)."""
    assert result.returncode == 0, result.failure
    return np.array([re.findall(r"loss (\S+)", rank.output) for rank in result.ranks], float)


@pytest.fixture(scope="module")
def losses_on_one_process() -> np.ndarray:
    """Compute the oracle: the losses of one process that sees the whole batch."""
    program = [sys.executable, EXAMPLES / "train_data_parallel.py", "--every", "1"]
    return losses(simulate.run(program, nodes=1))[0]


@pytest.mark.parametrize("layout", [pytest.param("2x2", marks=pytest.mark.full), "2x1, 2 GPUs each"])
def test_training_equals_one_process(layout: str, losses_on_one_process: np.ndarray) -> None:
    """The same global batch gives the same losses on one process and on many, and the same parameters on every rank."""
    program = [sys.executable, EXAMPLES / "train_data_parallel.py", "--every", "1"]
    result = simulate.run(program, **LAYOUTS[layout])  # type: ignore[arg-type]
    found = losses(result)
    ends = [line for line in parse_rank_lines(result.output.splitlines()) if isinstance(line, RankEnd)]

    assert found.shape[1] == 40
    np.testing.assert_allclose(found, np.broadcast_to(losses_on_one_process, found.shape), rtol=TOLERANCE)
    assert len(ends) == len(result.ranks)
    assert len({end.params for end in ends}) == 1


def test_comparison_sees_a_process_that_repeats_the_rows_of_another(losses_on_one_process: np.ndarray) -> None:
    """Where all processes take the first rows, the losses differ by far more than the tolerance."""
    code = (
        "import train_data_parallel as t; rows = t.rows_of_step; "
        "t.rows_of_step = lambda step, first, count: rows(step, 0, count); t.main()"
    )
    command = [sys.executable, "-c", code, "--every", "1"]
    found = losses(simulate.run(command, nodes=2, env={"PYTHONPATH": str(EXAMPLES)}))

    assert np.max(np.abs(found[0] / losses_on_one_process - 1)) > 10 * TOLERANCE


def test_profile_share_is_that_of_its_table(tmp_path: Path) -> None:
    """The share of the all-reduce lies between nothing and all, and its operation is in the table."""
    program = [sys.executable, EXAMPLES / "profile_allreduce.py", "--output", tmp_path, "--megabytes", "0.5"]
    result = simulate.run(program, nodes=2)

    assert result.returncode == 0, result.failure
    for rank in result.ranks:
        assert len(re.findall(r"^all-reduce +\S+ +10 calls", rank.output, re.MULTILINE)) == 1
        share = re.search(r"(\d+)% of ([\d.]+) ms is all-reduce", rank.output)
        assert share is not None
        assert 0 < int(share[1]) <= 100
        assert math.isfinite(float(share[2]))


STAND_INS = {
    "scontrol": 'echo "JobId=$3 JobName=test"',
    "module": 'test "$1" = load',
    "singularity": 'test "$1 $2 $3" = "run --nv /images/jax.sif" && shift 3 && exec "$@"',
    "srun": (
        'while [[ "$1" == --* ]]; do echo "srun option $1"; shift; done\n'
        'exec srunbook simulate --nodes "$TEST_NODES" --ntasks-per-node "$TEST_TASKS" '
        '--gpus-per-node "$TEST_TASKS" -- "$@"'
    ),
}


def directive(script: Path, name: str) -> str:
    """Value of a `#SBATCH` directive that is stated once."""
    values = re.findall(rf"^#SBATCH --{name}=(\S+)", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(values) == 1, f"{script.name} states --{name} {len(values)} times"
    return str(values[0])


IN_PLACE_OF_A_PROGRAM = """
import os

rank, world = os.environ["SLURM_PROCID"], os.environ["SLURM_NTASKS"]
print(f"rank {rank}/{world} start", f"rank {rank}/{world} end steps=0", sep="\\n", flush=True)
"""


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.full)], ids=["stand-in", "real"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_starts_its_program(script: Path, real: bool, tmp_path: Path) -> None:
    """A job script, as published, starts its program on every task, from the folder that holds both files.

    On the real Slurm of tests/cluster it always starts the real one.
    """
    for name, text in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "jax-env").symlink_to(sys.prefix)
    program = re.findall(r"[\w.]+\.py\b", script.read_text(encoding="utf-8").partition("srun ")[2])[-1]
    text = (EXAMPLES / program).read_text(encoding="utf-8") if real else IN_PLACE_OF_A_PROGRAM
    (tmp_path / program).write_text(text, encoding="utf-8")
    nodes, tasks = directive(script, "nodes"), min(int(directive(script, "ntasks-per-node")), 2)
    result = subprocess.run(
        ["bash", script],
        cwd=tmp_path,
        env={
            "PATH": f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path / "home"),
            "JAX_IMAGE": "/images/jax.sif",
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_NAME": script.stem,
            "SLURM_CPUS_PER_TASK": directive(script, "cpus-per-task"),
            "TEST_NODES": nodes,
            "TEST_TASKS": str(tasks),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert ("JobId=17" in result.stdout) == ("scontrol show job" in script.read_text(encoding="utf-8"))
    assert "srun option --cpus-per-task=4" in result.stdout
    assert "srun option --kill-on-bad-exit=1" in result.stdout
    told = parse_rank_lines(result.stdout.splitlines())
    assert sum(isinstance(line, RankEnd) for line in told) == int(nodes) * tasks


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_has_the_form_of_one(script: Path) -> None:
    """A job script begins with its shebang, has its directives before any command, and marks what to edit."""
    text = script.read_text(encoding="utf-8")
    lines = text.splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))

    assert lines[0] == "#!/bin/bash"
    assert lines[first_command] == "set -eo pipefail"
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:])
    edits = {line.split("=")[0] for line in lines if "# EDIT" in line}
    site = ("partition", "account", "nodes", "gpus-per-node", "ntasks-per-node", "cpus-per-task", "mem", "time")
    assert edits >= {f"#SBATCH --{name}" for name in site}
    assert any("# EDIT" in line for line in lines[first_command:])  # where Python comes from
    assert directive(script, "job-name") == script.stem.removesuffix("_container")  # the same job, in a container
    for name in ("nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time"):
        directive(script, name)


@pytest.mark.parametrize("name", ["jax_multinode/jax.def", "torchrun/torch.def"])
def test_image_names_its_sources_only_by_arguments(name: str) -> None:
    """The definition of an image has no host name in it, and installs the versions that the constraints pin."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    installed = re.findall(r"\b([a-z]+)(?:\[.*?\])?==([\d.]+)", text)

    assert not re.search(r"https?://", text)
    assert re.search(r"^MirrorURL: \{\{ MIRROR \}\}$", text, re.MULTILINE)
    assert "{{ INDEX }}" in text
    assert not re.search(r"^\s*(MIRROR|INDEX)=", text, re.MULTILINE)
    assert len(installed) == 2
    assert {f"{package}=={release}" for package, release in installed} <= set(constraints.splitlines())
