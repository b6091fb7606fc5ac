"""The JAX programs of the guide *When it does not fit*: every mesh against one device, checkpoints, and bad input.

`pytest tests/simulation/test_does_not_fit_jax.py --record --full` writes the recordings anew.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import jax_continued
from support.jax_layouts import EXACT, STEPS, Training, difference, train
from support.one_oracle import FEWER_STEPS

from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "does_not_fit"

FULL = pytest.mark.full

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(scope="module")
def steps(pytestconfig: pytest.Config) -> int:
    """Say how many steps a training takes."""
    return STEPS if pytestconfig.getoption("--full") else FEWER_STEPS


@pytest.fixture(scope="module")
def one(compiled_once: None, steps: int, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Train the oracle: one device, in float64."""
    return train(tmp_path_factory.mktemp("one"), "sharded_jax.py", "data=1", steps=steps)


# One oracle -----------------------------------------------------------------------------------------------------------


def test_mesh_computes_what_one_device_does(one: Training, steps: int, tmp_path: Path) -> None:
    """In float64, losses and parameters are those of one device; bench/does_not_fit_jax.py has all meshes."""
    found = train(tmp_path, "sharded_jax.py", "shard=2,tensor=2", processes=2, devices=2, steps=steps)

    assert difference(found, one).within(EXACT, EXACT)


UPDATE = "    updates, state = OPTIMIZER.update(gradients, state, params)\n"

BY_HAND = """    def clip(own):  # the parts that one device holds
        squares = {name: (part**2).sum() for name, part in own.items()}
        for name in squares:
            if "shard" in tuple(LAYOUT[name]):
                squares[name] = jax.lax.psum(squares[name], "shard")
        longer = jax.numpy.maximum(sum(squares.values()) ** 0.5 / 0.25, 1)
        return {name: part / longer for name, part in own.items()}

    gradients = jax.shard_map(clip, in_specs=(LAYOUT,), out_specs=LAYOUT, check_vma=False)(gradients)
"""
"""Clip the gradients device by device, with the sum over all devices written out."""

SCALED = "    gradients = jax.tree.map(lambda gradient: gradient / {}, gradients)\n"

CLIPPED_BY_HAND = {"optax.clip_by_global_norm(0.25), ": ""}

WRONG = {
    "a norm without its all-reduce": (
        1,
        CLIPPED_BY_HAND | {UPDATE: BY_HAND.replace('jax.lax.psum(squares[name], "shard")', "squares[name]") + UPDATE},
    ),
    "gradients divided by the wrong number": (
        1,
        {UPDATE: SCALED.format("BATCH_SIZE") + UPDATE},  # once more
    ),
    "a process with another seed": (2, {"RandomState(0)": "RandomState(jax.process_index())"}),
    "processes that read the same rows": (
        2,
        {"batch.__getitem__": "lambda part: batch[: part[0].stop - part[0].start]"},
    ),
}
"""What a training may do wrong on two devices: among how many processes, and the changes to the text of the program."""


@pytest.mark.parametrize("wrong", [next(iter(WRONG)), *(pytest.param(name, marks=FULL) for name in [*WRONG][1:])])
def test_oracle_sees(wrong: str, one: Training, steps: int, tmp_path: Path) -> None:
    """A training that computes something else is far outside of the tolerance."""
    processes, edits = WRONG[wrong]
    found = train(
        tmp_path, "sharded_jax.py", "shard=2", processes=processes, devices=2 // processes, edits=edits, steps=steps
    )

    assert difference(found, one).parameters > 1000 * EXACT


@FULL
def test_oracle_accepts_a_norm_by_hand(one: Training, tmp_path: Path) -> None:
    """With its all-reduce, the norm by hand is within the tolerance: the oracle sees no way of writing."""
    found = train(tmp_path, "sharded_jax.py", "shard=2", devices=2, edits=CLIPPED_BY_HAND | {UPDATE: BY_HAND + UPDATE})

    assert difference(found, one).within(EXACT, EXACT)


# Checkpoints ----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_checkpoint_of_each_mesh_is_read_on_one_device(one: Training, tmp_path: Path) -> None:
    """Written on any mesh, read on another: the end is that of the unbroken training, unless the optimizer is lost.

    bench/does_not_fit_jax_checkpoints.py reads on each mesh.
    """
    saved = tmp_path / "saved"
    for name, before in jax_continued.write(saved).items():
        expected = {step: one.losses[step] for step in range(1, jax_continued.SAVED + 1)}
        assert before.losses == pytest.approx(expected, abs=EXACT), name
    found = jax_continued.read(saved, tmp_path / "right", "one_device")
    anew = {"done, (params, state) = load": "done, (params, _) = load"}
    wrong = jax_continued.read(saved, tmp_path / "wrong", "one_device", anew)

    assert found.keys() == wrong.keys() == jax_continued.MESHES.keys()
    for name, after in found.items():
        assert difference(after, one).within(EXACT, EXACT), name
        assert not difference(wrong[name], one).within(1000 * EXACT, 1000 * EXACT), name


@FULL  # test_jax_multinode_ladder.py does the same to the program that this one grew from
def test_failed_save_ends_all_and_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    """A full disk ends all processes at once, after the loss is printed; the next start loads the newest whole step."""
    step = """        if device.platform == "cpu":"""
    full = f"        step == 3 and rank == 1 and resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n{step}"
    edits = {"import re\n": "import re, resource\n", step: full}
    failed = train(tmp_path, "resume_jax.py", "shard=2", processes=2, edits=edits)
    checkpoints = tmp_path / "checkpoints" / "resume_jax-simulation"
    left = sorted(path.name for path in checkpoints.iterdir() if path.name.isdigit())
    for part in (checkpoints / left[-1]).rglob("ocdbt.process_1/d/*"):  # process 0 could read its own
        part.write_bytes(b"")
    continued = train(tmp_path, "resume_jax.py", "shard=2", processes=2, edits={"STEPS + 1)": "5)"})

    assert failed.status != 0
    assert re.search("^(.1. )?error: cannot save in .*File too large", failed.text, re.MULTILINE)
    assert max(failed.losses) == 3
    assert left == ["1", "2"]
    assert continued.status == 0, continued.text
    assert continued.text.count("checkpoint 2 cannot be read") == 2
    assert continued.text.count("resumed after step 1\n") == 1
    assert sorted(continued.losses) == [2, 3, 4]


# What the compiler says of a mesh -------------------------------------------------------------------------------------


def held(mesh: str) -> int:
    """Return the bytes on each device before a step, in 32 bits: parameters, both moments, a count, and the batch."""
    sizes = {"data": 1, "shard": 1, "tensor": 1} | {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", mesh)}
    shard, tensor = sizes["shard"], sizes["tensor"]
    layer = 12 * 64 * 64 // (shard * tensor) + 4 * 64 // tensor + 6 * 64  # matrices are divided, most vectors are not
    parameters = 4 * layer + (13 + 32 + 13) * 64 // shard + 2 * 64
    return 4 * (3 * parameters + 1 + 32 * 33 // (sizes["data"] * shard))


@pytest.mark.full
def test_compiler_knows_what_a_device_holds(reader: Any) -> None:
    """What it counts on a device is what the mesh leaves there; parts are gathered, and copies only added up."""
    program = EXAMPLES / "compare_meshes.py"
    (command,) = reader.commands(program)
    run = reader.run(program, command, beside=[EXAMPLES / "sharded_jax.py"])
    assert run.exit_code == 0, run.text
    found = re.findall(r"^(\S+) +holds +(\d+) KiB; (.*)$", run.text, re.MULTILINE)

    assert len(found) == 4
    for mesh, kibibytes, exchanged in found:
        assert int(kibibytes) == round(held(mesh) / 1024), mesh
        assert "all-reduce" in exchanged
        assert ("all-gather" in exchanged) == ("shard" in mesh), mesh
    reader.compare(program, run, lambda line: True, ())


# Bad input ------------------------------------------------------------------------------------------------------------

BAD = {
    "shard=4": "a mesh of shard=4 does not fit 2 devices",
    "model=2": "--mesh model=2 is not of the form data=2,shard=2,tensor=2",
    "tensor=3": "4 heads do not divide among 3 devices",
    "data=3": "32 sequences do not divide among 3 groups of devices",
}


@pytest.mark.parametrize("mesh", [next(iter(BAD)), *(pytest.param(mesh, marks=FULL) for mesh in [*BAD][1:])])
def test_bad_mesh_ends_all_processes(mesh: str, tmp_path: Path) -> None:
    """A mesh that does not work out is refused in one line, by one process, before anything is written."""
    processes = 3 if "3" in mesh else 2
    found = train(tmp_path, "sharded_jax.py", mesh, processes=processes)

    assert found.status == 2, found.text
    said = [line.partition("] ")[2] for line in found.text.splitlines() if "rank " not in line]
    assert said == [f"error: {BAD[mesh]}"]
    assert not found.parameters


# As a reader runs them ------------------------------------------------------------------------------------------------


def printed(text: str) -> dict[int, float]:
    """Losses that a program printed, by step."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss (\S+)", text)}


@pytest.mark.full
@pytest.mark.parametrize("name", ["sharded_jax.py", "resume_jax.py"])
def test_commands_of_the_docstring(name: str, reader: Any) -> None:
    """Each command at the top of a program gives the same losses; the last prints what was recorded."""
    found = []
    for command in reader.commands(EXAMPLES / name):
        shutil.rmtree(reader.folder / "checkpoints", ignore_errors=True)
        run = reader.run(EXAMPLES / name, command)
        assert run.exit_code == 0, f"{command}\n{run.text}"
        assert "warning" not in run.text
        found.append(printed(run.text))
    starts = [line for line in parse_rank_lines(run.output) if isinstance(line, RankStart)]

    assert len(found) > 1
    assert name == "sharded_jax.py" or (reader.folder / "checkpoints" / "resume_jax-simulation" / "40").is_dir()
    assert all(losses == pytest.approx(found[0], rel=1e-5) for losses in found)
    assert sorted(start.rank for start in starts) == [0, 1, 2, 3]
    reader.compare(EXAMPLES / name, run)
