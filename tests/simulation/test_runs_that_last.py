"""The guide *Runs that last*: its programs on a laptop.

`pytest tests/simulation/test_runs_that_last.py --record` writes what they print.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import forked
from support.reader import Reader

from recordings.comparing import ROUNDING

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "runs_that_last"
SETTINGS = EXAMPLES / "settings.csv"


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Run]:
    """Run a program in a folder, with some of its text replaced."""
    with forked.running(EXAMPLES, tmp_path_factory) as start:
        yield start


def test_row_prints_what_the_page_shows(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the docstring trains with the settings of a row."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    program = EXAMPLES / "train.py"
    (command,) = reader.commands(program)
    printed = reader.run(program, command, beside=[SETTINGS])
    reader.compare(program, printed, lambda line: "loss" in line or line.startswith(("rank ", "row ")), ROUNDING)


def test_row_is_trained_once(run: forked.Run, tmp_path: Path) -> None:
    """A row that has a result isn't trained again; other settings aren't mixed with its checkpoint or its result."""
    shutil.copy(SETTINGS, tmp_path)
    first = run("train.py", 2, 2, folder=tmp_path)
    again = run("train.py", 2, 2, folder=tmp_path)
    (tmp_path / "settings.csv").write_text(SETTINGS.read_text().replace("0.01,8", "0.02,8"))
    changed = run("train.py", 2, 2, folder=tmp_path)

    assert first.statuses == again.statuses == [0, 0], first.text + again.text
    assert json.loads((tmp_path / "runs/2/result.json").read_text())["loss"] == pytest.approx(
        first.losses[-1], abs=1e-6
    )
    assert (again.losses, again.text.count("has the result already")) == ([], 2)
    assert changed.statuses == [1, 1], changed.text
    (line,) = changed.errors
    assert "runs/2/checkpoint" in line
    assert "{'lr': '0.01', 'width': '8'}" in line


def test_row_continues_where_it_was_killed(run: forked.Run, tmp_path: Path) -> None:
    """A row that was killed after its last save, but before its result was written, gives the same result."""
    shutil.copy(SETTINGS, tmp_path)
    whole = run("train.py", 1, 1, folder=tmp_path)
    (tmp_path / "runs/1/result.json").unlink()
    resumed = run("train.py", 1, 1, folder=tmp_path)

    assert resumed.statuses == [0], resumed.text
    assert resumed.losses == []
    assert json.loads((tmp_path / "runs/1/result.json").read_text())["loss"] == pytest.approx(
        whole.losses[-1], abs=1e-6
    )


@pytest.mark.parametrize(
    ("number", "setting", "error"),
    [(7, "0.03,16", "settings.csv has 6 rows, so there is no row 7"), (6, "30,16", "the loss of row 6 is nan")],
    ids=["no such row", "diverges"],
)
def test_row_fails(run: forked.Run, tmp_path: Path, number: int, setting: str, error: str) -> None:
    """A row that doesn't exist, or whose loss isn't finite, ends all ranks with an error and leaves no checkpoint."""
    (tmp_path / "settings.csv").write_text(SETTINGS.read_text().replace("0.03,16", setting))
    training = run("train.py", 2, number, folder=tmp_path)

    assert training.statuses == [1, 1], training.text
    assert error in training.text
    assert not (tmp_path / f"runs/{number}/checkpoint").exists()


# How often to save ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["how_often.py", "week.py"])
def test_interval_is_printed(name: str, reader: Any) -> None:
    """The command of a program prints the intervals and shares that the page shows."""
    (command,) = reader.commands(EXAMPLES / name)
    run = reader.run(EXAMPLES / name, command)

    assert run.exit_code == 0, run.text
    reader.compare(EXAMPLES / name, run, keep=lambda _line: True, masks=[])


def how_often(reader: Any, **options: float) -> tuple[float, float]:
    """Return the minutes after Daly, and the useful percentage, that the program prints."""
    argv = [f"--{name}={value}" for name, value in options.items()]
    text, status = reader.alone([sys.executable, str(EXAMPLES / "how_often.py"), *argv])
    assert status == 0, text
    minutes, percent = re.findall(r"([\d.]+)(?: minutes \(Daly|%)", text)
    return float(minutes), float(percent)


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1), (0.01, 0.6)])
def test_interval_is_the_published_one(hours: float, minutes: float, reader: Any) -> None:
    """For saves of 5 minutes, the intervals are those of Daly's figures 3 to 5; it's M if M is under half of a save."""
    found, _ = how_often(reader, save=300, restart=600, nodes=2, days=2 * hours / 24)

    assert found == pytest.approx(minutes, rel=0.006)


@pytest.mark.parametrize("kind", ["SAVE", "PAUSE"])
def test_simulated_weeks_agree_with_the_formula(
    kind: str, reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a failure every four hours, the best interval is near Young's, and both programs predict the mean share."""
    monkeypatch.chdir(tmp_path)
    simulate, formula = map(runpy.run_path(str(EXAMPLES / "week.py")).get, ("simulate", "formula"))
    simulate.__globals__.update(MEAN=4 * 3600, RESTART=600, SAVE=300, PAUSE=60)
    pause = simulate.__globals__[kind]
    young = np.sqrt(2 * pause * 4 * 3600)
    daly, percent = how_often(reader, save=pause, restart=600 + 300 - pause, nodes=1, days=4 / 24)

    def mean(interval: float) -> float:
        return float(np.mean([simulate(seed, interval, pause) for seed in range(1000)]))

    found = {factor: mean(factor * young) for factor in (1 / 4, 1 / 2, 1, 2, 4)}
    assert max(found, key=found.__getitem__) == 1
    for factor, share in found.items():
        assert share == pytest.approx(formula(factor * young, pause), abs=0.003)
    assert percent / 100 == pytest.approx(mean(60 * daly), abs=0.003)
