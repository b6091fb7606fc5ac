"""The guide *Runs that last*: its programs on a laptop.

`pytest tests/simulation/test_runs_that_last.py --record` writes what they print.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import forked
from support.programs import losses
from support.reader import Reader
from torchdata.stateful_dataloader import StatefulDataLoader

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


# Local disks and many small files -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder where pack.py has run with its stand-in data, and files beside it that make samples unequal."""
    folder = tmp_path_factory.mktemp("packed")
    subprocess.run([sys.executable, str(EXAMPLES / "pack.py")], cwd=folder, check=True)
    for number in range(2048):
        (folder / "samples" / f"{number:06}.txt").write_bytes(bytes(number))
    subprocess.run([sys.executable, str(EXAMPLES / "pack.py")], cwd=folder, check=True)
    return folder


def test_packing_prints_what_the_page_shows(reader: Reader) -> None:
    """The command of the docstring packs the stand-in data."""
    program = EXAMPLES / "pack.py"
    (command,) = reader.commands(program)
    run = reader.run(program, command)
    reader.compare(program, run, keep=lambda _line: True, masks=[])


def test_shards_hold_whole_samples(tmp_path: Path) -> None:
    """All shards hold as many samples; the files of one are neighbours, and dots in a folder's name are none of it."""
    names = [f"v1.{number % 3}/{number:02}.{suffix}" for number in range(10) for suffix in ("cls", "seg.png", "npy")]
    for name in names:
        path = tmp_path / "samples" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    program = (EXAMPLES / "pack.py").read_text(encoding="utf-8").replace("SHARDS = 16 ", "SHARDS = 4 ")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)

    stored, shuffled = [], []
    for path in sorted(tmp_path.glob("shards/*.tar")):
        index = json.loads(path.with_suffix(".json").read_text())
        with tarfile.open(path) as tar:
            members = tar.getmembers()
        assert len(members) == 9
        assert [*index] == [member.name for member in members]
        for first in range(0, 9, 3):
            assert len({member.name.rpartition("/")[2][:2] for member in members[first : first + 3]}) == 1
        shuffled.append([name.rpartition("/")[2][:2] for name in [*index][::3]])
        for name, (at, size) in index.items():
            assert path.read_bytes()[at : at + size].decode() == name
        stored += index
    assert len(stored) == 36
    assert {*stored} == {*names}
    assert shuffled[0] != ["00", "01", "05"]


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import shards.py."""
    monkeypatch.syspath_prepend(EXAMPLES)
    multiprocessing.set_forkserver_preload(["torchdata.stateful_dataloader"])
    return importlib.import_module("shards")


def loader_of(samples: Any, workers: int) -> Any:
    """Return a loader; its workers aren't forked from this process, where JAX may have started threads."""
    context = "forkserver" if workers else None
    return StatefulDataLoader(samples, 16, num_workers=workers, drop_last=True, multiprocessing_context=context)


def samples_of(loader: Any) -> list[float]:
    """Return one number for each sample."""
    return [image.sum().item() for images, _ in loader for image in images]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("workers", [0, 2])
def test_each_sample_is_read_once(workers: int, shards: Any, packed: Path) -> None:
    """In an epoch, ranks and loader workers share the samples; the next one has another order; a wrong number fails."""
    epochs = []
    for epoch in (0, 1, 1):
        ranks = [shards.Shards(packed / "shards", rank, 4) for rank in range(4)]
        for rank in ranks:
            rank.epoch = epoch
        read = [samples_of(loader_of(rank, workers)) for rank in ranks]
        assert {len(samples) for samples in read} == {512}
        epochs.append([sample for samples in read for sample in samples])
    stored = [np.fromfile(path, np.float32).sum() for path in packed.glob("samples/*.f32")]

    assert epochs[0] != epochs[1] == epochs[2]
    assert sorted(epochs[0]) == sorted(epochs[1]) == pytest.approx(sorted(stored), abs=1e-3)
    with pytest.raises(ValueError, match="16 shards for 3 loader workers of all ranks"):
        next(iter(shards.Shards(packed / "shards", 0, 3)))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("workers", [0, 2])
def test_read_part_is_not_read_again(workers: int, shards: Any, packed: Path, tmp_path: Path) -> None:
    """A loader that continues inside an epoch reads nothing of what is done, which may be zeros; the next is whole."""
    folder = shutil.copytree(packed / "shards", tmp_path / "shards")
    whole = samples_of(loader_of(shards.Shards(folder, 0, 1), workers))
    stopped = loader_of(shards.Shards(folder, 0, 1), workers)
    read = samples_of(islice(stopped, 75))
    state = stopped.state_dict()
    if workers:
        states = [worker["dataset_state"] for worker in state["_snapshot"]["_worker_snapshots"].values()]
    else:
        states = [state["dataset_state"]]
    order = np.random.default_rng(0).permutation(16)
    paths = sorted(folder.glob("*.tar"))
    for number, place in enumerate(states):
        own = [paths[shard] for shard in order[number :: len(states)]]
        for path in own[: place["shard"]]:
            path.write_bytes(bytes(path.stat().st_size))
        with own[place["shard"]].open("r+b") as file:
            file.write(bytes(place["byte"]))
    resumed = loader_of(shards.Shards(folder, 0, 1), workers)
    resumed.load_state_dict(state)

    assert read + samples_of(resumed) == whole
    for path in paths:
        shutil.copy(packed / "shards" / path.name, path)
    assert samples_of(resumed) == whole


def stop_after(batch: int) -> tuple[str, str]:
    """Return an edit of stateful.py that sends the signal to rank 1 after a batch of epoch 1."""
    step = "            optimizer.step()\n"
    return (
        step,
        f"{step}            if (epoch, done, rank) == (1, {batch - 1}, 1): signal.raise_signal(signal.SIGUSR1)\n",
    )


@pytest.mark.parametrize("batch", [7, 32], ids=["inside an epoch", "with the last batch"])
def test_stateful_training_continues(batch: int, run: forked.Run, packed: Path, tmp_path: Path) -> None:
    """A training that was stopped inside an epoch has the losses of one without a break; other ranks cannot join."""
    (tmp_path / "shards").symlink_to(packed / "shards")
    short = ("EPOCHS = 5", "EPOCHS = 3")
    whole = run("stateful.py", 2, "shards", folder=tmp_path, edit=short)
    (tmp_path / "stateful-run.checkpoint").unlink()
    stopped = run("stateful.py", 2, "shards", folder=tmp_path, edit=stop_after(batch), PATH="/nowhere")
    alone = run("stateful.py", 1, "shards", folder=tmp_path)
    resumed = run("stateful.py", 2, "shards", folder=tmp_path, edit=short)

    assert stopped.statuses == resumed.statuses == [0, 0], stopped.text + resumed.text
    assert stopped.text.count(f"stopped in epoch 1 after batch {batch}") == 1
    assert "2 processes saved it inside an epoch: start as many" in alone.errors[0]
    assert len(whole.losses) == 3
    assert stopped.losses + resumed.losses == pytest.approx(whole.losses, rel=1e-6)


def test_grain_prints_what_the_page_shows(reader: Reader, packed: Path) -> None:
    """One process and four print the same losses, and both continue inside an epoch with the losses of one run."""
    program = EXAMPLES / "grain_resume.py"
    alone, four = reader.commands(program)
    (reader.folder / "shards").symlink_to(packed / "shards")
    printed = reader.run(program, alone)
    reader.compare(program, printed, lambda line: "loss" in line or line.startswith("rank "), ROUNDING)

    for newest in (reader.folder / "checkpoints" / "grain-run").glob("100"):
        shutil.rmtree(newest)
    resumed = reader.run(program, alone)
    assert "resumed after step 80" in resumed.text
    assert re.findall("step 100: loss.*", resumed.text) == re.findall("step 100: loss.*", printed.text)
    simulated = reader.run(program, four)
    assert losses(simulated.text) == pytest.approx(losses(printed.text), rel=1e-4)
