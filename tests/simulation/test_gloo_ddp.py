"""The programs of the gloo guide on one, two and four ranks, resumed, and with what can go wrong."""

from __future__ import annotations

import fcntl
import re
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from support import forked
from support.accidents import disk_full, flip_a_bit, killed_before_rename

from recordings import read_recording, recording_path
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gloo_ddp" / "full"

SMALL = ("--days=7", "--epochs=2", "--max-steps=25")
"""A training that takes a second."""

IN_FLOAT64 = 1e-9
"""Largest difference of any parameter between numbers of ranks after 50 steps in float64: 1e-12 was seen."""

MARGIN = 0.2
"""By how much of itself the better baseline's val_mae is undercut at least; 0.26 was seen."""

TIMES = ("epoch_time_sec", "throughput_samples_per_sec", "data_load_time_sec", "compute_time_sec", "cpu_util_avg")


class Outcome(forked.Outcome):
    """What came of a training; its folder holds the results."""

    def table(self, name: str = "metrics.csv") -> list[dict[str, str]]:
        """Rows of a file of the results of a training that went well."""
        assert set(self.statuses) == {0}, self.text
        return super().table(name)

    @property
    def metrics(self) -> list[dict[str, str]]:
        """Rows of metrics.csv without what depends on the clock."""
        return [{name: text for name, text in row.items() if name not in TIMES} for row in self.table()]


class Tasks(forked.Forked):
    """Runs the training; the cached speeds are in `data` in its folder."""

    def __call__(self, ranks: int, *options: object, folder: Path | None = None, before: str = "") -> Outcome:
        """Run it with one task on each node, in a results folder of its own unless one is given."""
        folder = folder or self.new_folder()
        argv = [str(EXAMPLES / "train_traffic.py"), f"--results={folder}", *map(str, options)]
        return Outcome(self.run(argv, nodes=ranks, processes=1, before=forked.AS_TASK + before, environ={}), folder)


pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def tasks(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tasks]:
    """Give a way to run the training as tasks."""
    with forked.forking(EXAMPLES) as process:
        yield Tasks(process, tmp_path_factory.mktemp("tasks"))


# The same training on all numbers of ranks ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tasks: Tasks) -> Outcome:
    """Train the oracle: one rank that sees the whole batch, in float64."""
    return tasks(1, *SMALL, "--double")


def test_parameters_are_those_of_one_rank(alone: Outcome, tasks: Tasks) -> None:
    """On two ranks the same global batch leads to the same parameters and metrics, up to rounding."""
    outcome = tasks(2, *SMALL, "--double")
    one, two = (torch.load(run.folder / "checkpoint_latest.pth")["model"] for run in (alone, outcome))

    assert outcome.fingerprint
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < IN_FLOAT64
    assert outcome.metrics == alone.metrics
    starts = [line for line in parse_rank_lines(outcome.text.splitlines()) if isinstance(line, RankStart)]
    assert [(start.rank, start.host, start.epochs) for start in starts] == [(0, "node0", 2), (1, "node1", 2)]
    kinds = {(start.local_rank, start.device, start.backend, start.framework, start.job) for start in starts}
    assert kinds == {(0, "cpu", "gloo", f"torch-{torch.__version__}", "17")}
    assert len({start.pid for start in starts} - {None}) == 2


def test_every_window_is_validated_once(tasks: Tasks) -> None:
    """Three ranks, which cannot share the batch or the windows equally, say so and have the metrics of one rank."""
    few = ("--days=7", "--epochs=1", "--double")
    one, three = tasks(1, *few, "--batch-size=63"), tasks(3, *few, "--batch-size=64")

    assert three.metrics == one.metrics
    assert three.text.count("--batch-size 64 does not divide by 3: each rank takes 21, together 63") == 1


def test_each_epoch_has_its_own_order(tasks: Tasks) -> None:
    """A model that hardly learns has another loss in the next epoch, because its steps see other windows."""
    first, second = tasks(1, *SMALL, "--learning-rate=1e-30").metrics

    assert first["train_loss"] != second["train_loss"]
    assert first["val_loss"] == second["val_loss"]


def test_files_agree_with_logs(tasks: Tasks) -> None:
    """What rank 0 prints of an epoch is what the files hold, and each rank has a row of each epoch and a log."""
    exported = "e.update(RANK='0', LOCAL_RANK='0', WORLD_SIZE='1')\n"  # by the job script, where all are of rank 0
    outcome = tasks(2, *SMALL, "--resume", before=exported)
    printed = outcome.ranks[0]["stdout"]
    epochs = re.findall(r"^epoch (\d+)/2  train_loss (\S+)  val_loss (\S+)  val_mae", printed, re.MULTILINE)

    assert "DDP on 2 ranks on 2 nodes" in printed
    assert "resuming" not in printed
    assert epochs == [(row["epoch"], row["train_loss"], row["val_loss"]) for row in outcome.metrics]
    assert [row["epoch"] for row in outcome.metrics] == ["1", "2"]
    assert [*outcome.table()[0]] == [
        *("epoch", "train_loss", "val_loss", "val_mae", "val_rmse", "epoch_time_sec", "throughput_samples_per_sec"),
        *("data_load_time_sec", "compute_time_sec", "gpu_util_avg", "cpu_util_avg"),
    ]
    assert list(outcome.table("timings.csv")[0]) == [
        *("rank", "host", "epoch", "data_load_time_sec", "compute_time_sec", "all_reduce_time_sec", "epoch_time_sec")
    ]
    assert [(row["rank"], row["host"], row["epoch"]) for row in outcome.table("timings.csv")] == [
        (str(rank), f"node{rank}", str(epoch)) for epoch in (1, 2) for rank in (0, 1)
    ]
    for rank, output in enumerate(outcome.ranks):
        log = (outcome.folder / f"rank_{rank}.log").read_text()
        assert log.splitlines() == output["stdout"].splitlines()


def test_traceback_is_in_the_log(tasks: Tasks) -> None:
    """The log of a rank that crashes ends with the reason."""
    code = (
        "import torch\n"
        "def crash(*_, **__): raise RuntimeError('the reason')\n"
        "if e['SLURM_PROCID'] == '1': torch.optim.Adam = crash\n"
    )
    outcome = tasks(2, *SMALL, before=code)

    assert outcome.statuses == [1, 1], outcome.text
    assert "RuntimeError: the reason" in outcome.ranks[1]["stderr"]
    assert (outcome.folder / "rank_1.log").read_text().endswith("RuntimeError: the reason\n")


# Resume --------------------------------------------------------------------------------------------------------------


def test_resume_is_bit_identical(tasks: Tasks) -> None:
    """One epoch and a resume end with the parameters and the metrics of a training without a break, bit for bit."""
    options = ("--days=7", "--max-steps=25", "--batch-size=72")
    in_one_go = tasks(3, *options, "--epochs=2")
    first = tasks(3, *options, "--epochs=1")
    resumed = tasks(3, *options, "--epochs=2", "--resume", folder=first.folder)

    assert resumed.fingerprint == in_one_go.fingerprint
    assert resumed.metrics == in_one_go.metrics
    assert "resuming after epoch 1" in resumed.text
    assert [row["epoch"] for row in resumed.table("timings.csv")[::3]] == ["1", "2"]


def test_killed_while_it_saves(tasks: Tasks) -> None:
    """A rank that is killed between two files of an epoch costs no row of a table and leaves no part of a file."""
    options = ("--days=7", "--epochs=1", "--max-steps=2")
    killed = tasks(2, *options, before=killed_before_rename(".pth", ".csv", number=2))
    resumed = tasks(2, *options, "--resume", folder=killed.folder)

    assert killed.statuses[0] == 9, killed.text
    assert [row["epoch"] for row in resumed.table("metrics.csv")] == ["1"]
    assert [row["rank"] for row in resumed.table("timings.csv")] == ["0", "1"]
    assert not list(resumed.folder.glob(".*.tmp"))


# Bad input -----------------------------------------------------------------------------------------------------------

BAD = {
    "an option": ("--learning-rate=nan", "error: --learning-rate nan: give more than 0"),
    "data": ("--data=nowhere.h5", "error: cannot read --data nowhere.h5 as HDF5: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_rank_0(case: str, tasks: Tasks) -> None:
    """Bad input ends all ranks with status 2, rank 0 says what is wrong, and no results are written."""
    option, message = BAD[case]
    outcome = tasks(2, "--days=7", option)

    assert outcome.refusal.startswith(message)
    assert not (outcome.folder / "metrics.csv").exists()


def test_results_are_not_overwritten(alone: Outcome, tasks: Tasks) -> None:
    """A training without --resume, or while another trains in the folder, leaves its results alone."""
    before = {path.name: path.read_bytes() for path in alone.folder.iterdir()}
    outcome = tasks(2, *SMALL, folder=alone.folder)
    with (alone.folder / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = tasks(2, *SMALL, "--resume", folder=alone.folder)

    message = "already holds checkpoint_latest.pth: give another folder, or --resume to continue there"
    assert message in outcome.refusal
    assert second.refusal.startswith(f"error: another job is training in {alone.folder}: wait, or give another")
    assert {path.name: path.read_bytes() for path in alone.folder.iterdir()} == before


def test_full_disk(tasks: Tasks) -> None:
    """Where the disk has no room for a file, rank 0 names it, all ranks end, and the next start continues."""
    few = ("--days=7", "--epochs=2", "--max-steps=2")
    tasks(1, *few)  # the speeds are on the disk
    full = tasks(2, *few, before=disk_full(5))
    resumed = tasks(2, *few, "--resume", folder=full.folder)

    assert full.refusal == f"error: cannot write {full.folder}/timings.csv: No space left on device"
    assert full.refusal in (full.folder / "rank_0.log").read_text()
    assert [row["epoch"] for row in resumed.table()] == ["1", "2"]
    assert not list(resumed.folder.glob(".*.tmp"))


def test_checkpoint_that_cannot_be_resumed(alone: Outcome, tasks: Tasks, tmp_path: Path) -> None:
    """A checkpoint of another model, and a damaged one, are refused by name and kept."""
    folder = shutil.copytree(alone.folder, tmp_path / "results")
    path = folder / "checkpoint_latest.pth"
    other = tasks(2, *SMALL, "--resume", "--hidden=8", folder=folder)
    flip_a_bit(path)
    content = path.read_bytes()
    damaged = tasks(2, *SMALL, "--resume", folder=folder)

    assert "size mismatch for place" in other.refusal
    assert damaged.refusal.startswith(f"error: {path} is damaged or of another model: delete it, and start again")
    assert path.read_bytes() == content


# The end -------------------------------------------------------------------------------------------------------------

COUNT_THREADS = """
import pathlib, sys, torch.distributed as dist
destroy = dist.destroy_process_group
def counted():
    destroy()
    names = [path.read_text() for path in pathlib.Path('/proc/self/task').glob('*/comm')]
    print('threads of gloo:', sum('gloo' in name for name in names), file=sys.__stdout__, flush=True)
dist.destroy_process_group = counted
"""


def test_no_thread_outlives_the_process_group(tasks: Tasks) -> None:
    """When a rank ends, gloo's threads have ended: one that is left may abort the process."""
    outcome = tasks(2, "--days=7", "--epochs=1", "--max-steps=5", before=COUNT_THREADS)

    assert outcome.statuses == [0, 0], outcome.text
    assert re.findall(r"threads of gloo: (\d+)", outcome.text) == ["0", "0"]


def test_every_rank_ends_with_the_status_of_the_error(tasks: Tasks) -> None:
    """A rank that is on its way out keeps its own status when srun terminates it, because another rank has failed."""
    code = (
        "import os, signal, torch.distributed as dist\n"
        "barrier = dist.barrier\n"
        "dist.barrier = lambda: (os.kill(os.getpid(), signal.SIGTERM), barrier())\n"
    )
    outcome = tasks(2, "--days=7", "--epochs=-1", before=code)

    assert outcome.statuses == [2, 2], outcome.text


# Data ----------------------------------------------------------------------------------------------------------------


def write_table(path: Path, key: str, mph: np.ndarray, times: np.ndarray) -> Path:
    """Write a generated file in the layout that pandas gives to METR-LA (`df`) and PEMS-BAY (`speed`)."""
    names = np.array([f"{400000 + sensor}".encode() for sensor in range(mph.shape[1])])
    parts = {"axis0": names, "axis1": times, "block0_items": names, "block0_values": mph}
    with h5py.File(path, "w") as file:
        for name, values in parts.items():
            file[f"{key}/{name}"] = values
    return path


@pytest.fixture(scope="module")
def traffic_data() -> Any:
    """Return the functions and constants of the example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return SimpleNamespace(**runpy.run_path(str(EXAMPLES / "traffic_data.py")))


@pytest.fixture(scope="module")
def week(traffic_data: Any) -> np.ndarray:
    """Make a week of synthetic speeds."""
    return traffic_data.make_speeds(days=7)


MARCH = 1330560000 * 10**9
"""Thursday, 1 March 2012, in nanoseconds: the first day of METR-LA."""

FIVE_MINUTES = 300 * 10**9


def test_hdf5_is_read(week: np.ndarray, traffic_data: Any, tmp_path: Path) -> None:
    """A file in the form of PEMS-BAY gives speeds, times of day and weekends; a gap is filled as missing."""
    mph = week.astype(np.float64)
    times = MARCH + FIVE_MINUTES * np.arange(len(mph))
    mph[5, 3] = np.nan
    keep = np.arange(len(mph)) // 12 != 26  # an hour that the table leaves out, as summer time does
    table = write_table(tmp_path / "speeds.h5", "speed", mph[keep], times[keep])
    speeds, places, source = traffic_data.read_hdf5(table)
    expected = week.copy()
    expected[5, 3] = 0
    expected[~keep] = 0

    assert np.array_equal(speeds, expected)
    assert (places % 288).tolist() == (np.arange(len(mph)) % 288).tolist()
    assert [int(places[288 * day]) // 288 for day in range(7)] == [0, 0, 1, 1, 0, 0, 0]
    assert source == "file speeds.h5"


def test_training_on_hdf5(week: np.ndarray, tasks: Tasks, tmp_path: Path) -> None:
    """The training reads a file in the form of METR-LA, generated here, and comes to the same as without the file."""
    times = MARCH - 3 * 288 * FIVE_MINUTES + FIVE_MINUTES * np.arange(len(week))  # a Monday
    path = write_table(tmp_path / "generated.h5", "df", week.astype(np.float64), times)
    outcome = tasks(2, f"--data={path}", "--epochs=1", "--max-steps=5")
    without = tasks(2, "--days=7", "--epochs=1", "--max-steps=5")

    assert outcome.metrics == without.metrics
    assert "speeds: file generated.h5; 24 sensors" in outcome.text


# What was recorded ---------------------------------------------------------------------------------------------------


def test_recording_undercuts_the_baselines() -> None:
    """When it was recorded, the program undercut the better baseline."""
    text = read_recording(recording_path(EXAMPLES / "train_traffic.py")).text
    last = re.findall(r"epoch \d.*val_mae ([\d.]+)", text)[-1]
    baselines = map(float, re.findall(r"baseline .*val_mae ([\d.]+)", text))

    assert float(last) < (1 - MARGIN) * min(baselines)
