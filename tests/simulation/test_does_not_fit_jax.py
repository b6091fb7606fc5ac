"""The JAX programs of the guide *When it does not fit*: a mesh against one device, checkpoints, and bad input.

`pytest tests/simulation/test_does_not_fit_jax.py --record --full` writes the recordings anew.
bench/does_not_fit_jax.py and bench/does_not_fit_jax_checkpoints.py have all meshes, in 64 bits.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.programs import edited
from support.reader import Reader

from recordings import read_recording, recording_path
from srunbook import simulate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"
EXACT = 1e-5
"""Largest relative difference of a loss in float32: the same numbers, added in another order."""

Run = Callable[..., simulate.Result]

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a program on a mesh, with half of its layers and some text replaced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # half of the time to compile
    layers = ("LAYERS = 64, 4, 4\n", "LAYERS = 64, 4, 2\n")

    def start(name: str, mesh: str, processes: int, *edits: tuple[str, str], devices: int = 0) -> simulate.Result:
        command = [sys.executable, edited(EXAMPLES / name, tmp_path, [layers, *edits]), "--mesh", mesh]
        return simulate.run(command, nodes=processes, gpus_per_node=devices)

    return start


def losses(text: str) -> dict[int, float]:
    """Losses that a program printed, by step."""
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss (\S+)", text)}


def test_another_mesh_continues(run: Run, tmp_path: Path) -> None:
    """A second mesh continues with the losses of one device; without the optimizer's state, with others."""
    one = run("sharded_jax.py", "data=1", 1)
    first = run("resume_jax.py", "shard=2,tensor=2", 2, ("done + 1, STEPS + 1", "done + 1, 21"), devices=2)
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "kept")
    second = run("resume_jax.py", "data=2", 2)
    shutil.rmtree(tmp_path / "checkpoints")
    (tmp_path / "kept").rename(tmp_path / "checkpoints")
    wrong = run("resume_jax.py", "data=2", 2, ("done, (params, state) = load", "done, (params, _) = load"))

    for result in (one, first, second, wrong):
        assert result.returncode == 0, result.failure
    assert second.output.count("resumed after step 20\n") == 1
    assert [*losses(first.output), *losses(second.output)] == [10, 20, 30, 40]
    assert losses(first.output) | losses(second.output) == pytest.approx(losses(one.output), rel=EXACT)
    assert losses(wrong.output)[40] != pytest.approx(losses(one.output)[40], rel=10 * EXACT)


def test_compiler_knows_what_is_exchanged() -> None:
    """In what was recorded, parts are gathered, and copies only added up."""
    recorded = read_recording(EXAMPLES / "compare_meshes.recording.json")
    found = re.findall(r"^(\S+) +holds +\d+ KiB; (.*)$", recorded.text, re.MULTILINE)

    assert len(found) == 4
    for mesh, exchanged in found:
        assert "all-reduce" in exchanged
        assert ("all-gather" in exchanged) == ("shard" in mesh), mesh


def test_bad_mesh_ends_all_processes(run: Run, tmp_path: Path) -> None:
    """A mesh that does not work out is refused in one line, by one process, before anything is written."""
    result = run("sharded_jax.py", "tensor=3", 3)

    assert result.returncode == 2, result.failure
    lines = [line.partition("] ")[2] for line in result.output.splitlines() if "rank " not in line]
    assert lines == ["error: 4 heads do not divide among 3 devices"]
    assert not [*tmp_path.glob("model*.npz")]


@pytest.mark.parametrize("name", ["sharded_jax.py", "resume_jax.py"])
def test_commands_of_the_docstring(name: str, reader: Reader) -> None:
    """The two commands at the top of a program give the same losses; test_recorded_programs.py runs the last."""
    first, _ = reader.commands(EXAMPLES / name)
    result = reader.run(EXAMPLES / name, first)
    recorded = read_recording(recording_path(EXAMPLES / name))

    assert result.exit_code == 0, result.text
    assert losses(result.text) == pytest.approx(losses(recorded.text), rel=EXACT)
    assert name == "sharded_jax.py" or (reader.folder / "checkpoints" / "resume_jax-run" / "40").is_dir()
