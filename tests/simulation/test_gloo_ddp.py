"""The programs of the gloo guide on one, two and four ranks, twice, resumed, and with everything that can be wrong."""

from __future__ import annotations

import fcntl
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from support import forked
from support.accidents import flip_a_bit, killed_before_rename

from recordings.comparing import Mask
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gloo_ddp" / "full"
MODULES = [EXAMPLES / "traffic_data.py"]

SMALL = ("--days=7", "--epochs=2", "--max-steps=25")
"""A training that takes a second."""

IN_FLOAT64 = 1e-9
"""Largest difference of any parameter between numbers of ranks after 50 steps in float64: 1e-12 was seen."""

IN_FLOAT32 = 1e-5
"""The same after 5 steps in float32: 2e-7 was seen. Parameters are of the order of 0.1.

After 50 steps it is 2e-7 to 1e-2, by processor: where a gradient is nearly 0, Adam takes a whole step by its sign.
"""

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

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The model in the checkpoint."""
        assert set(self.statuses) == {0}, self.text
        return dict(torch.load(self.folder / "checkpoint_latest.pth", weights_only=True)["model"])


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


def largest_difference(one: Outcome, other: Outcome) -> float:
    """Largest difference of any parameter."""
    return max(float((value - other.parameters[name]).abs().max()) for name, value in one.parameters.items())


# The same training on all numbers of ranks ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tasks: Tasks) -> Outcome:
    """Train the oracle: one rank that sees the whole batch, in float64."""
    return tasks(1, *SMALL, "--double")


@pytest.fixture(scope="module")
def two_ranks(tasks: Tasks) -> Outcome:
    """Train on two ranks, with --resume and nothing to resume, and with variables that a job script has exported."""
    return tasks(2, *SMALL, "--resume", before="e.update(RANK='0', LOCAL_RANK='0', WORLD_SIZE='1')\n")


def test_parameters_are_those_of_one_rank(alone: Outcome, tasks: Tasks) -> None:
    """On two ranks the same global batch leads to the same parameters and metrics, up to rounding."""
    outcome = tasks(2, *SMALL, "--double")

    assert outcome.fingerprint
    assert largest_difference(outcome, alone) < IN_FLOAT64
    assert outcome.metrics == alone.metrics
    starts = [line for line in parse_rank_lines(outcome.text.splitlines()) if isinstance(line, RankStart)]
    assert [(start.rank, start.host, start.epochs) for start in starts] == [(0, "node0", 2), (1, "node1", 2)]
    kinds = {(start.local_rank, start.device, start.backend, start.framework, start.job) for start in starts}
    assert kinds == {(0, "cpu", "gloo", f"torch-{torch.__version__}", "17")}
    assert len({start.pid for start in starts} - {None}) == 2


def test_parameters_in_float32(tasks: Tasks) -> None:
    """In float32 the parameters of one rank and of four differ by rounding; a second run on four has the same bits."""
    few = ("--days=7", "--epochs=1", "--max-steps=5")
    one, four, again = tasks(1, *few), tasks(4, *few), tasks(4, *few)

    assert 0 < largest_difference(one, four) < IN_FLOAT32
    assert again.fingerprint == four.fingerprint
    assert again.metrics == four.metrics


def test_batch_that_does_not_divide(tasks: Tasks) -> None:
    """Two ranks asked for a batch of 65 take 32 windows each, say so once, and train as with a batch of 64."""
    few = ("--days=7", "--epochs=1", "--max-steps=5")
    odd, even = tasks(2, *few, "--batch-size=65"), tasks(2, *few, "--batch-size=64")

    assert odd.fingerprint == even.fingerprint
    assert odd.text.count("--batch-size 65 does not divide by 2: each rank takes 32, together 64") == 1
    assert "does not divide" not in even.text


def test_comparison_sees_a_loss_divided_by_what_each_rank_has(alone: Outcome, tasks: Tasks) -> None:
    """Where a rank divides by the number of its own values, the missing ones shift the weights of the others."""
    code = (
        "import pathlib, runpy\n"
        "def changed(path, **more):\n"
        "    text = pathlib.Path(path).read_text()\n"
        "    assert 'loss.numel()' in text\n"
        "    exec(text.replace('loss.numel()', '(truth > 0).sum()'), {'__name__': '__main__'})\n"
        "runpy.run_path = changed\n"
    )
    outcome = tasks(2, *SMALL, "--double", before=code)

    assert outcome.fingerprint
    assert largest_difference(outcome, alone) > 1e3 * IN_FLOAT64


def test_every_window_is_validated_once(alone: Outcome, tasks: Tasks) -> None:
    """Three ranks, among which the windows cannot be shared equally, come to the same validation as one."""
    one, three = (tasks(ranks, "--days=7", "--epochs=1", "--double", "--batch-size=63") for ranks in (1, 3))

    assert three.metrics == one.metrics


def test_files_agree_with_logs(two_ranks: Outcome) -> None:
    """What rank 0 prints of an epoch is what the files hold, and each rank has a row of each epoch and a log."""
    outcome = two_ranks
    printed = outcome.ranks[0]["stdout"]
    epochs = re.findall(r"^epoch (\d+)/2  train_loss (\S+)  val_loss (\S+)  val_mae", printed, re.MULTILINE)

    assert epochs == [(row["epoch"], row["train_loss"], row["val_loss"]) for row in outcome.metrics]
    assert [row["epoch"] for row in outcome.metrics] == ["1", "2"]
    assert [*outcome.table()[0]] == [
        *("epoch", "train_loss", "val_loss", "val_mae", "val_rmse", "epoch_time_sec", "throughput_samples_per_sec"),
        *("data_load_time_sec", "compute_time_sec", "gpu_util_avg", "cpu_util_avg"),
    ]
    assert list(outcome.table("timings.csv")[0]) == COLUMNS.split(",")
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


def test_resume_with_nothing_to_resume(two_ranks: Outcome) -> None:
    """With --resume a training begins where there is no checkpoint yet, whatever RANK the job script has exported."""
    assert two_ranks.fingerprint
    assert "resuming" not in two_ranks.text
    assert "DDP on 2 ranks on 2 nodes" in two_ranks.text


# Bad input -----------------------------------------------------------------------------------------------------------

BAD = {
    "learning rate": (["--learning-rate=nan"], "--learning-rate nan: give more than 0"),
    "batch of more than all": (
        ["--batch-size=5000"],
        "--batch-size 5000: 2 ranks would take 2500 windows each, of only 1589",
    ),
    "missing data": (["--data=nowhere.h5"], "cannot read --data nowhere.h5 as HDF5: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_by_one_rank(case: str, tasks: Tasks) -> None:
    """Bad input ends all ranks with status 2, one of them says what is wrong, and no results are written."""
    options, message = BAD[case]
    outcome = tasks(2, "--days=7", *options)

    assert message in outcome.refusal
    assert not (outcome.folder / "metrics.csv").exists()


def test_wrong_option_is_said_by_each_rank(tasks: Tasks) -> None:
    """Whichever rank ends first, and lets srun end the others, has said in one line what is wrong."""
    outcome = tasks(2, "--days=a week")
    line = "train_traffic.py: error: argument --days: invalid int value: 'a week'\n"

    assert [(rank["status"], rank["stdout"], rank["stderr"]) for rank in outcome.ranks] == [(2, "", line)] * 2


def test_results_are_not_overwritten(alone: Outcome, tasks: Tasks) -> None:
    """A training without --resume, or while another trains in the folder, leaves its results alone."""
    before = {path.name: path.read_bytes() for path in alone.folder.iterdir()}
    outcome = tasks(2, *SMALL, folder=alone.folder)
    with (alone.folder / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = tasks(2, *SMALL, "--resume", folder=alone.folder)

    said = "already holds checkpoint_latest.pth: give another folder, or --resume to continue there"
    assert said in outcome.refusal
    assert second.refusal.startswith(f"error: another job is training in {alone.folder}: wait, or give another")
    assert {path.name: path.read_bytes() for path in alone.folder.iterdir()} == before


def test_results_folder_that_cannot_be(tmp_path: Path, tasks: Tasks) -> None:
    """A results folder that cannot be made is refused before the training begins."""
    (tmp_path / "file").write_text("kept")
    folder = tmp_path / "file" / "results"
    outcome = tasks(2, *SMALL, folder=folder)

    assert outcome.refusal.startswith(f"error: cannot write to --results {folder}: ")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (flip_a_bit, "checkpoint_latest.pth is damaged or of another model: delete it"),
        (lambda path: torch.save({}, path), "KeyError('model')"),
    ],
    ids=["a flipped bit", "of another model"],
)
def test_checkpoint_that_cannot_be_resumed(
    damage: Any, said: str, alone: Outcome, tasks: Tasks, tmp_path: Path
) -> None:
    """A damaged checkpoint, and one of another model, are refused by name and kept."""
    folder = tmp_path / "results"
    shutil.copytree(alone.folder, folder)
    path = folder / "checkpoint_latest.pth"
    damage(path)
    content = path.read_bytes()
    outcome = tasks(2, *SMALL, "--resume", folder=folder)

    assert said in outcome.refusal
    assert path.read_bytes() == content


STARTS = {
    "no srun": (1, "del e['SLURM_STEP_ID']", "in a job, start this program with srun"),
    "unknown backend": (2, "e['BACKEND'] = 'glue'", "BACKEND is 'glue': give gloo, or nccl on nodes where"),
    "no GPU": (2, "e['BACKEND'] = 'nccl'", "BACKEND is 'nccl': give gloo, or nccl on nodes where PyTorch sees GPUs"),
}


@pytest.mark.parametrize("case", STARTS)
def test_wrong_start_is_said_by_one_task(case: str, tasks: Tasks) -> None:
    """Tasks that were started in a wrong way end with status 2, and only the first says why."""
    if case == "no GPU" and torch.cuda.is_available():
        pytest.skip("here is a GPU")
    ranks, code, message = STARTS[case]
    outcome = tasks(ranks, *SMALL, before=code)

    assert message in outcome.refusal


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


@pytest.mark.parametrize("wrong", [(), ("--batch-size=5000",)])
def test_no_thread_outlives_the_process_group(wrong: tuple[str, ...], tasks: Tasks) -> None:
    """When a rank ends, well or with an error, gloo's threads have ended: one that is left may abort the process."""
    outcome = tasks(2, "--days=7", "--epochs=1", "--max-steps=5", *wrong, before=COUNT_THREADS)

    assert outcome.statuses == ([2, 2] if wrong else [0, 0]), outcome.text
    assert re.findall(r"threads of gloo: (\d+)", outcome.text) == ["0", "0"]


def test_every_rank_ends_with_the_status_of_the_error(tasks: Tasks) -> None:
    """A rank that is on its way out keeps its own status when srun terminates it, because another rank has failed."""
    code = (
        "import os, signal, torch.distributed as dist\n"
        "destroy = dist.destroy_process_group\n"
        "dist.destroy_process_group = lambda: (os.kill(os.getpid(), signal.SIGTERM), destroy())\n"
    )
    outcome = tasks(2, "--days=7", "--epochs=-1", before=code)

    assert outcome.statuses == [2, 2], outcome.text


# Data ----------------------------------------------------------------------------------------------------------------


def write_table(path: Path, key: str, mph: np.ndarray, times: np.ndarray, **instead: np.ndarray) -> Path:
    """Write a generated file in the layout that pandas gives to METR-LA (`df`) and PEMS-BAY (`speed`)."""
    names = np.array([f"{400000 + sensor}".encode() for sensor in range(mph.shape[1])])
    parts = {"axis0": names, "axis1": times, "block0_items": names, "block0_values": mph, **instead}
    with h5py.File(path, "w") as file:
        for name, values in parts.items():
            file[f"{key}/{name}"] = values
    return path


@pytest.fixture(scope="module")
def traffic_data() -> Any:
    """Return the functions and constants of the example."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / "traffic_data.py")))


@pytest.fixture(scope="module")
def made(traffic_data: Any) -> np.ndarray:
    """Make a week of synthetic speeds."""
    return traffic_data.make_speeds(days=7)


MARCH = 1330560000 * 10**9
"""Thursday, 1 March 2012, in nanoseconds: the first day of METR-LA."""

FIVE_MINUTES = 300 * 10**9


@pytest.mark.parametrize("key", ["df", "speed"])
def test_hdf5_is_read(key: str, made: np.ndarray, traffic_data: Any, tmp_path: Path) -> None:
    """A file in the form of METR-LA or PEMS-BAY gives speeds, times of day and weekends; a gap is filled as missing."""
    mph = made.astype(np.float64)
    times = MARCH + FIVE_MINUTES * np.arange(len(mph))
    mph[5, 3] = np.nan
    keep = np.arange(len(mph)) // 12 != 26  # an hour that the table leaves out, as summer time does
    table = write_table(tmp_path / "speeds.h5", key, mph[keep], times[keep])
    speeds, places, source = traffic_data.read_hdf5(table)
    expected = made.copy()
    expected[5, 3] = 0
    expected[~keep] = 0

    assert np.array_equal(speeds, expected)
    assert (places % 288).tolist() == (np.arange(len(mph)) % 288).tolist()
    assert [int(places[288 * day]) // 288 for day in range(7)] == [0, 0, 1, 1, 0, 0, 0]
    assert source == "file speeds.h5"


def test_training_on_hdf5(made: np.ndarray, tasks: Tasks, tmp_path: Path) -> None:
    """The training reads a file in the form of METR-LA, generated here, and comes to the same as without the file."""
    times = MARCH - 3 * 288 * FIVE_MINUTES + FIVE_MINUTES * np.arange(len(made))  # a Monday
    path = write_table(tmp_path / "generated.h5", "df", made.astype(np.float64), times)
    outcome = tasks(2, f"--data={path}", "--epochs=1", "--max-steps=5")
    without = tasks(2, "--days=7", "--epochs=1", "--max-steps=5")

    assert outcome.metrics == without.metrics
    assert "speeds: file generated.h5; 24 sensors" in outcome.text


def no_table(path: Path, mph: np.ndarray, times: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["speeds"] = mph


WRONG = {
    "no table": (no_table, "holds 0 tables of speeds and should hold one"),
    "other shape": (
        lambda path, mph, times: write_table(path, "df", mph[:-1], times),
        "block0_values has the shape (199, 24), and axis1 has 200 times",
    ),
    "too short": (
        lambda path, mph, times: write_table(path, "df", mph[:100], times[:100]),
        "give both the same number of rows, 120 or more",
    ),
    "times that fall": (lambda path, mph, times: write_table(path, "df", mph, times[::-1]), "should hold rising times"),
    "other interval": (
        lambda path, mph, times: write_table(path, "df", mph, times // 5 + MARCH),
        "should hold rising times in nanoseconds, 5 minutes apart",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_hdf5_is_refused(case: str, made: np.ndarray, tasks: Tasks, tmp_path: Path) -> None:
    """A file in another form ends all ranks with one sentence that says what is wrong with it."""
    write, message = WRONG[case]
    path = tmp_path / "wrong.h5"
    write(path, made[:200].astype(np.float64), MARCH + FIVE_MINUTES * np.arange(200))
    outcome = tasks(2, f"--data={path}")

    assert message in outcome.refusal


# Slow nodes ----------------------------------------------------------------------------------------------------------

COLUMNS = "rank,host,epoch,data_load_time_sec,compute_time_sec,all_reduce_time_sec,epoch_time_sec"
"""Of timings.csv."""


def write_timings(folder: Path, rows: list[tuple[int, int, float, float]]) -> None:
    """Write a timings.csv from ranks, epochs, and seconds of computing and of waiting."""
    lines = [f"{rank},node{rank},{epoch},0.1,{work},{wait},2.0" for rank, epoch, work, wait in rows]
    (folder / "timings.csv").write_text("\n".join([COLUMNS, *lines]))


def name_slow_nodes(folder: Path) -> tuple[int, list[str]]:
    """Exit status and lines of slow_nodes.py."""
    program = EXAMPLES / "slow_nodes.py"
    result = subprocess.run([sys.executable, program, folder], capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def test_slow_rank_is_named(tmp_path: Path) -> None:
    """Of three ranks the one that takes longer for each step is named, by its host, and no other."""
    write_timings(tmp_path, [(rank, epoch, 1.9 if rank == 2 else 0.4, 0.1) for epoch in (1, 2) for rank in range(3)])
    status, lines = name_slow_nodes(tmp_path)

    assert status == 1
    assert lines[4:] == ["slow: rank 2 on node2, 4.0 times as long as the others"]


def test_equal_ranks_are_not_slow(tmp_path: Path) -> None:
    """Where all ranks work for nearly as long, none is named, however long the first epoch took."""
    write_timings(tmp_path, [(0, 1, 9.0, 0.1), (1, 1, 1.0, 8.1), (0, 2, 1.0, 0.2), (1, 2, 1.1, 0.1)])
    status, printed = name_slow_nodes(tmp_path)

    assert (status, printed[-1]) == (0, "no rank works for more than 1.5 times as long as the others")
    assert name_slow_nodes(tmp_path / "nowhere")[0] == 2


# Through srun --------------------------------------------------------------------------------------------------------

MASKS = (Mask(r"(train_loss|val_loss|val_mae|val_rmse) [\d.]+", r"\1 <n>", "processors round in different ways"),)


def test_commands_of_the_docstring_work(reader: Any) -> None:
    """The last command at the top of the program undercuts the better baseline, and prints what was recorded."""
    program = EXAMPLES / "train_traffic.py"
    run = reader.run(program, reader.commands(program)[-1], beside=MODULES)
    last = re.findall(r"epoch \d.*val_mae ([\d.]+)", run.text)[-1]
    baselines = map(float, re.findall(r"baseline .*val_mae ([\d.]+)", run.text))

    assert run.exit_code == 0, run.text
    assert float(last) < (1 - MARGIN) * min(baselines)
    reader.compare(program, run, lambda line: True, MASKS)
