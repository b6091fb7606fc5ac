"""Other people's programs, converted as the torchrun guide says, print on several processes what they print on one."""

from __future__ import annotations

import difflib
import functools
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import forked

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = Path(__file__).with_name("foreign")
CONVERTED = FOREIGN / "converted"

MOST = 20
"""Lines that a conversion may add or change: what the guide promises."""

EXACT = 1e-5
"""Largest relative difference of a number in float32: the same terms, added in another order."""

LAST_DIGIT = 2e-6
"""What rounding to the six digits that the programs print may add to it."""

IMAGES = 17
"""Of each class: 55 to train with, whose last batch of 3 leaves one of four processes without any."""

OPTIONS = {
    "char_gpt.py": "tales.txt --steps 24 --eval_every 8 --eval_batches 2 --dim 32 --layers 1 --sample_len 5",
    "classify_folder.py": "shapes --epochs 2 --batch-size 13 --print-freq 1",
    "fit_table.py": "flats.csv --epochs 12 --patience 1 --learning-rate 0.02 --hidden 16 --dropout 0",
}
"""Data and options; dropout draws other numbers on each process. The early stop is one of the decisions to share."""

NUMBERS = {"char_gpt.py": 8, "classify_folder.py": 14, "fit_table.py": 12}
"""How many losses a run prints at least."""

pytestmark = pytest.mark.usefixtures("quick_start")

Run = Callable[..., forked.Outcome]


def changed_lines(name: str) -> list[str]:
    """Return the lines of a conversion that the original does not have, without blank ones and comments."""
    before, after = ((folder / name).read_text(encoding="utf-8").splitlines() for folder in (FOREIGN, CONVERTED))
    new = [line[2:].strip() for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    return [line for line in new if line and not line.startswith("#")]


def losses(outcome: forked.Outcome) -> list[float]:
    """Return all losses and errors that were printed, by whichever rank."""
    return [float(number) for number in re.findall(r"(?:loss|RMSE) +([\d.]+)", outcome.text)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make small data for all programs."""
    folder = tmp_path_factory.mktemp("data")
    make: dict[str, Any] = runpy.run_path(str(FOREIGN / "make_data.py"))
    make["CLASSES"].update(dict.fromkeys(make["CLASSES"], IMAGES))
    make["make_shapes"](folder / "shapes")
    make["make_tales"](folder / "tales.txt")
    make["make_flats"](folder / "flats.csv")
    return folder


@pytest.fixture(scope="module")
def run(quick_start: None, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a program of a folder on its data, with some of its text replaced."""
    with forked.forking(ROOT / "examples" / "torchrun") as process:

        def start(program: Path, processes: int, *edits: tuple[str, str]) -> forked.Outcome:
            folder = tmp_path_factory.mktemp("run")
            text = program.read_text(encoding="utf-8")
            for old, new in edits:
                assert old in text, old
                text = text.replace(old, new)
            copy = folder / program.name
            copy.write_text(text, encoding="utf-8")
            name, *options = OPTIONS[program.name].split()
            ranks = forked.Forked(process, folder).run(
                [str(copy), str(data / name), *options], nodes=1, processes=processes, before="", environ={}
            )
            return forked.Outcome(ranks, folder)

        yield start


@pytest.fixture(scope="module")
def alone(run: Run) -> Callable[[str], forked.Outcome]:
    """Return what a program as it was found prints, and leaves, on one device."""

    @functools.cache
    def find(name: str) -> forked.Outcome:
        outcome = run(FOREIGN / name, 1)
        assert outcome.statuses == [0], outcome.text
        return outcome

    return find


@pytest.fixture(scope="module")
def on_several(run: Run) -> Callable[[str, int], forked.Outcome]:
    """Return what a converted program prints, and leaves, on some processes."""
    return functools.cache(lambda name, processes: run(CONVERTED / name, processes))


@pytest.mark.parametrize("name", OPTIONS)
def test_conversion_takes_twenty_lines(name: str) -> None:
    """The guide's conversion changes no more lines than the guide says."""
    lines = changed_lines(name)

    assert 10 < len(lines) <= MOST, "\n".join(lines)


def test_page_says_how_many_lines() -> None:
    """The guide names the shortest and the longest of these conversions."""
    page = (ROOT / "docs" / "guides" / "torchrun" / "convert.md").read_text(encoding="utf-8")
    counts = sorted(len(changed_lines(name)) for name in OPTIONS)

    assert f"converted in {counts[0]} to {counts[-1]} lines" in page


@pytest.mark.parametrize("processes", [4, *(pytest.param(number, marks=pytest.mark.full) for number in (1, 2))])
@pytest.mark.parametrize("name", OPTIONS)
def test_losses_are_those_of_one_device(name: str, processes: int, on_several: Any, alone: Any) -> None:
    """A converted program prints the losses of the original, once, on 1, 2 and 4 processes, as the page says."""
    converted = on_several(name, processes)
    expected = losses(alone(name))

    assert converted.statuses == [0] * processes, converted.text
    assert len(expected) >= NUMBERS[name]
    assert losses(converted) == pytest.approx(expected, rel=EXACT, abs=LAST_DIGIT)


def test_early_stop_is_part_of_the_comparison(alone: Any) -> None:
    """The options above stop the training early, so a conversion has to stop after the same epoch."""
    assert "no improvement for 1 epochs" in alone("fit_table.py").text


@pytest.mark.parametrize(
    ("name", "result"), [("char_gpt.py", "ckpt.pt"), ("classify_folder.py", "checkpoints/model_best.pth")]
)
def test_saved_model_is_that_of_one_device(name: str, result: str, on_several: Any, alone: Any) -> None:
    """The program for one device can load the model that several processes saved: no name begins with `module.`."""
    key = "model" if name == "char_gpt.py" else "state_dict"
    folders = (alone(name).folder, on_several(name, 4).folder)
    expected, found = (torch.load(folder / result, weights_only=True)[key] for folder in folders)

    assert list(found) == list(expected)
    for parameter, value in expected.items():
        torch.testing.assert_close(found[parameter], value, rtol=1e-3, atol=1e-4)


def test_table_is_written_once(on_several: Any, alone: Any) -> None:
    """All rows of the test set are predicted, and one process writes them."""
    folders = (alone("fit_table.py").folder, on_several("fit_table.py", 4).folder)
    expected, found = ((folder / "results" / "predictions.csv").read_text().splitlines() for folder in folders)

    assert len(found) == len(expected) == 151
    for row, other in zip(expected[1:], found[1:], strict=True):
        assert float(row.split(",")[-1]) == pytest.approx(float(other.split(",")[-1]), rel=1e-3, abs=0.1)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("char_gpt.py", "dist.all_reduce(loss.detach())", "pass"),
        ("classify_folder.py", "else BatchNorm)", "else nn.BatchNorm2d)"),
        ("fit_table.py", "[rank::world_size]", ""),
    ],
)
def test_comparison_sees_a_line_that_is_wrong(name: str, old: str, new: str, run: Run, alone: Any) -> None:
    """Without one of the lines that the guide asks for, the losses are others."""
    wrong = run(CONVERTED / name, 2, (old, new))

    assert losses(wrong)
    assert losses(wrong) != pytest.approx(losses(alone(name)), rel=10 * EXACT, abs=10 * LAST_DIGIT)
