"""The programs of the page on checkpoints: each saves on two processes, and resumes on four with the same losses.

`pytest tests/simulation/test_checkpoints_page.py --full --record` writes the recordings anew.
"""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import forked
from support.accidents import flip_a_bit

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "checkpoints"
FULL = pytest.mark.full

EXACT = 1e-5
"""Largest relative difference of a loss: the same numbers, added in another order."""

Start = Callable[..., list[float]]


def losses(text: str) -> list[float]:
    """Return the losses that a program printed."""
    return [float(loss) for loss in re.findall(r"processes, step \d+: loss ([\d.]+)$", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def start(quick_start: None) -> Iterator[Start]:
    """Run a program in a folder on some processes, up to a step; return the losses that it prints."""
    with forked.forking(EXAMPLES) as process:

        def run(name: str, folder: Path, processes: int, last: int) -> list[float]:
            argv = [str(EXAMPLES / name), str(last)]
            environ = {"TORCHELASTIC_RUN_ID": "1"}
            ranks = forked.Forked(process, folder).run(argv, nodes=1, processes=processes, before="", environ=environ)
            done = forked.Outcome(ranks, folder)
            assert done.statuses == [0] * processes, done.text
            return losses(done.text)

        yield run


@pytest.fixture(scope="module")
def unbroken(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Train on one process without a break: all programs for torch have the same model and data."""
    return start("with_torch_save.py", tmp_path_factory.mktemp("unbroken"), 1, 6)


HALF = {"with_torch_save.py": "checkpoint.tmp", "with_dcp.py": "checkpoints/9/__0_0.distcp"}
"""What a killed save leaves behind."""


@pytest.mark.parametrize("name", ["with_torch_save.py", "with_dcp.py", "with_lightning.py"])
def test_saves_on_two_processes_and_resumes_on_four(
    name: str, start: Start, unbroken: list[float], tmp_path: Path
) -> None:
    """The losses before and after the break are those of a training without one, whatever a killed save left."""
    before = start(name, tmp_path, 2, 3)
    if name in HALF:
        (tmp_path / HALF[name]).parent.mkdir(exist_ok=True)
        (tmp_path / HALF[name]).write_bytes(b"half a checkpoint")
    after = start(name, tmp_path, 4, 6)

    assert unbroken[3] != pytest.approx(unbroken[0], rel=1000 * EXACT), "a training that starts anew would not show"
    assert (len(before), len(after)) == (3, 3)
    assert before + after == pytest.approx(unbroken, rel=EXACT)


def momentum_descent(steps: int) -> list[float]:
    """Compute in NumPy what with_orbax.py computes in JAX."""
    rng = np.random.default_rng(0)
    x, y = np.float32(rng.normal(size=(64, 8))), np.float32(rng.normal(size=(64, 4)))
    weight, momentum, found = np.zeros((8, 4)), np.zeros((8, 4)), []
    for _ in range(steps):
        error = x @ weight - y
        found.append(float(np.mean(error**2)))
        momentum = 0.9 * momentum + 2 * x.T @ error / error.size
        weight -= 0.1 * momentum
    return found


@pytest.mark.parametrize(
    "name",
    [
        "with_orbax.py",
        *(pytest.param(name, marks=FULL) for name in ("with_torch_save.py", "with_dcp.py", "with_lightning.py")),
    ],
)
def test_commands_of_the_docstring(name: str, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two commands at the top of a program, one after the other, print what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = [reader.run(EXAMPLES / name, command) for command in reader.commands(EXAMPLES / name)]
    output = tuple(line for run in runs for line in run.output)
    both = replace(runs[-1], command=" && ".join(run.command for run in runs), output=output)

    assert [run.exit_code for run in runs] == [0, 0], both.text
    assert [len(losses(run.text)) for run in runs] == [3, 3]
    if name == "with_orbax.py":
        assert losses(both.text) == pytest.approx(momentum_descent(6), rel=EXACT)
    reader.compare(EXAMPLES / name, both, lambda line: "loss" in line, ())


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit is flipped": lambda folder: flip_a_bit(folder / "part1"),
    "a file is of another save": lambda folder: shutil.copy(folder.parent / "000030" / "part2", folder),
    "a file is missing": lambda folder: (folder / "part1").unlink(),
    "the seal is missing": lambda folder: (folder / "seal.json").unlink(),
    "the seal is half": lambda folder: (folder / "seal.json").write_text('{"part1": "'),
}


@pytest.mark.parametrize("what", [None, *DAMAGE])
def test_seal(what: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not as it was sealed is set aside, and the one before is found."""
    recipe = runpy.run_path(str(EXAMPLES / "seal.py"))
    for step in ("000030", "000040"):
        (tmp_path / step).mkdir()
        for name in ("part1", "part2"):
            (tmp_path / step / name).write_text(f"numbers of {name} after step {step}")
        recipe["seal"](tmp_path / step, ["part1", "part2"])
    damaged = tmp_path / "damaged-000040"
    damaged.mkdir()
    (damaged / "part1").write_text("of an earlier run")
    if what:
        DAMAGE[what](tmp_path / "000040")
    found = recipe["newest_whole"](tmp_path)

    assert found == tmp_path / ("000030" if what else "000040")
    assert capsys.readouterr().err.count("is damaged and set aside\n") == bool(what)
    assert (tmp_path / "000040").exists() != bool(what)
    assert (damaged / "part2").exists() == bool(what)
