"""The guide *When it does not fit* on a real Slurm: its scripts start every program, on several nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.published import submit

from recordings import read_recording, recording_path
from srunbook.cluster import State
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "slurm" / "does_not_fit"
EXAMPLES = ROOT / "examples" / "does_not_fit"

EXACT = 1e-4
"""Largest relative difference of a loss to that of DDP, or of the same Llama, in float32."""

MIXED = 0.02
"""The same in 16 bits."""

FULL = pytest.mark.full
ERRORS = "--error=%x-%j.out"
"""The log, in which a test that fails shows them."""
TWO = ("--nodes=2", "--gpus-per-node=1", "--ntasks-per-node=1")
CASES = [
    # stem of the script, program, options of sbatch, nodes, ranks, tolerance
    pytest.param("fsdp", "fsdp.py", TWO, 2, 2, MIXED),
    pytest.param("requeue", "requeue.py", TWO, 2, 2, MIXED),
    pytest.param("fsdp", "hsdp.py", (), 4, 8, MIXED, marks=FULL),
    pytest.param("fsdp", "tensor_parallel.py", ("--nodes=1",), 1, 2, EXACT, marks=FULL),
    pytest.param("fsdp", "fsdp_tp.py", (), 4, 8, MIXED, marks=FULL),
    pytest.param("fsdp", "context_parallel.py", (), 4, 8, MIXED, marks=FULL),
    pytest.param("fsdp", "less_memory.py", (), 4, 8, MIXED, marks=FULL),
    pytest.param("fsdp", "pipeline.py", ("--gpus-per-node=1",), 4, 4, EXACT, marks=FULL),
    pytest.param("fsdp", "llama_fsdp_tp.py weights", (), 4, 8, MIXED, marks=FULL),
    pytest.param("fsdp", "llama_pipeline.py weights", ("--gpus-per-node=1",), 4, 4, EXACT, marks=FULL),
    pytest.param("requeue", "llama_requeue.py weights", ("--job-name=llama",), 2, 4, MIXED, marks=FULL),
    pytest.param("accelerate", "accelerate_fsdp.py", ("--nodes=2", "--gpus-per-node=1"), 2, 2, EXACT),
    pytest.param("accelerate", "accelerate_fsdp.py", (), 4, 8, EXACT, marks=FULL),
    pytest.param("accelerate", "trainer_fsdp.py", ("--nodes=2", "--gpus-per-node=1"), 2, 2, EXACT, marks=FULL),
    pytest.param("lightning", "lightning_fsdp_tp.py", (*TWO, ERRORS), 2, 2, MIXED),
    pytest.param("lightning", "lightning_fsdp_tp.py", (ERRORS,), 4, 8, MIXED, marks=FULL),
]


def losses(lines: list[str]) -> list[float]:
    """Return the losses that a program printed."""
    return [float(found[1]) for line in lines if (found := re.search(r"step \d+: .*\bloss ([\d.]+)$", line))]


@pytest.mark.parametrize(("stem", "program", "options", "nodes", "size", "tolerance"), CASES)
def test_program_runs_by_its_script(
    slurm: State, stem: str, program: str, options: tuple[str, ...], nodes: int, size: int, tolerance: float
) -> None:
    """A program completes on its nodes, neighbours on one of them, with the losses of DDP or of its recording."""
    command = program.split()
    job = submit(slurm, SCRIPTS / f"{stem}.sbatch", command, options=list(options))
    starts = [line for line in parse_rank_lines(job.output.splitlines()) if isinstance(line, RankStart)]
    hosts = [start.host for start in sorted(starts, key=lambda start: start.rank)]

    assert job.state == "COMPLETED", job.output
    assert sorted((start.rank, start.world_size) for start in starts) == [(rank, size) for rank in range(size)]
    assert len(set(hosts)) == nodes
    assert [hosts[rank - rank % (size // nodes)] for rank in range(size)] == hosts
    (recorded,) = EXAMPLES.rglob(command[0] if command[0].startswith("llama") else "ddp.py")
    expected = losses(list(read_recording(recording_path(recorded)).output))
    assert losses(job.output.splitlines()) == pytest.approx(expected, rel=tolerance)


def placed(page: str) -> tuple[list[str], list[str]]:
    """Return the options of sbatch and the arguments of the program with which a page keeps an axis within a node."""
    text = (ROOT / "docs" / "guides" / "does-not-fit" / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^\$ sbatch (--.*--mesh .*)$", text, re.MULTILINE)
    options, _, arguments = command.partition(" sharded_jax.sbatch ")
    return options.split(), arguments.split()


@pytest.mark.full
@pytest.mark.parametrize("page", ["jax", "jax-checkpoints"])
def test_jax_program_takes_a_mesh(slurm: State, page: str) -> None:
    """With the command of the page, devices along the last axis share a node, and the losses stay the same."""
    options, arguments = placed(page)
    job = submit(slurm, SCRIPTS / "sharded_jax.sbatch", arguments, options=options)
    starts = [line for line in parse_rank_lines(job.output.splitlines()) if isinstance(line, RankStart)]
    hosts = [start.host for start in sorted(starts, key=lambda start: start.rank)]
    recording = read_recording(recording_path(EXAMPLES / "sharded_jax.py"))

    assert job.state == "COMPLETED", job.output
    assert sorted(start.rank for start in starts) == [0, 1, 2, 3]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert losses(job.output.splitlines()) == pytest.approx(losses(list(recording.output)), rel=EXACT)
