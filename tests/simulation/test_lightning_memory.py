"""The Lightning guide's program in less memory: the losses of ddp.py, from pieces, recomputed, in 16 bits.

`pytest tests/simulation/test_lightning_memory.py --full --record` renews the recording.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.comparing import Mask

from srunbook import simulate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "lightning"

EXACT = 1e-5
"""Largest relative difference of a loss in float32: the same numbers, added in another order."""

MIXED = 0.05
"""The same in 16 bits."""

FULL = pytest.mark.full

pytestmark = pytest.mark.usefixtures("quick_start")


def losses(name: str, processes: int, *edits: tuple[str, str]) -> list[float]:
    """Run a program of the guide for two epochs, with some of its text replaced; return the losses it printed."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for before, after in (("max_epochs=5", "max_epochs=2"), *edits):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    Path(name).write_text(text, encoding="utf-8")
    ended = simulate.run([sys.executable, name], ntasks_per_node=processes, env={"OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.failure
    return [float(loss) for loss in re.findall(r"loss ([\d.]+)$", ended.output, re.MULTILINE)]


@pytest.fixture(scope="module")
def one(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Train as one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("one"))
        return losses("ddp.py", 1)


@pytest.mark.parametrize("processes", [2, pytest.param(1, marks=FULL), pytest.param(4, marks=FULL)])
@pytest.mark.parametrize(("precision", "tolerance"), [("32-true", EXACT), ("bf16-mixed", MIXED)])
def test_losses(
    precision: str, tolerance: float, processes: int, one: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces and recomputing leave the losses as they are in float32, and 16 bits change them little."""
    monkeypatch.chdir(tmp_path)
    edit = ('PRECISION = "bf16-mixed"', f'PRECISION = "{precision}"')

    assert len(one) == 2
    assert losses("less_memory.py", processes, edit) == pytest.approx(one, rel=tolerance)


def test_comparison_sees_pieces_that_are_not_gathered(
    one: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step after each piece gives other losses, even by the measure of 16 bits."""
    monkeypatch.chdir(tmp_path)

    wrong = losses("less_memory.py", 2, ("        accumulate_grad_batches=PIECES,\n", ""))

    assert len(wrong) == 2
    assert wrong != pytest.approx(one, rel=MIXED)


MASKS = (
    Mask(r"host=\S+", "host=<name>", "another machine"),
    Mask(r"loss [\d.]+", "loss <n>", "processors round in different ways"),
)


@FULL
def test_command_of_the_docstring(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command at the top of the program runs it and prints what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    program = EXAMPLES / "less_memory.py"
    result = reader.run(program, reader.commands(program)[0])

    assert result.status == 0, result.text
    reader.compare(program, result, lambda line: "loss" in line or "rank " in line, MASKS)
