"""The programs of the gloo guide on one, two and four ranks, twice, resumed, and with everything that can be wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from support import forked
from support.comparing import Mask
from support.damage import flip_a_bit
from support.killed_rename import KILLED_BEFORE_RENAME

from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gloo_ddp" / "full"
MODULES = [EXAMPLES / name for name in ("traffic_data.py", "task_ranks.py", "result_files.py")]

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

AS_TASK = (
    "import os; e = os.environ\n"
    "e.update(SLURM_STEP_ID='0', SLURM_PROCID=e['RANK'], SLURM_LOCALID=e['LOCAL_RANK'], SLURM_NTASKS=e['WORLD_SIZE'])\n"
    "e.update(SLURM_JOB_ID='17', SLURM_STEP_NUM_NODES=e['SLURM_NNODES'])\n"
    "del e['RANK'], e['LOCAL_RANK'], e['WORLD_SIZE']\n"
)
"""Turns a forked rank into a task of srun, which knows only Slurm's variables."""


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
        return Outcome(self.run(argv, nodes=ranks, processes=1, before=AS_TASK + before, environ={}), folder)


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


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_parameters_are_those_of_one_rank(ranks: int, alone: Outcome, tasks: Tasks) -> None:
    """On any number of ranks the same global batch leads to the same parameters and metrics, up to rounding."""
    outcome = tasks(ranks, *SMALL, "--double")

    assert outcome.fingerprint
    assert largest_difference(outcome, alone) < IN_FLOAT64
    assert outcome.metrics == alone.metrics
    starts = [line for line in parse_rank_lines(outcome.text.splitlines()) if isinstance(line, RankStart)]
    assert [(start.rank, start.host, start.epochs) for start in starts] == [(r, f"node{r}", 2) for r in range(ranks)]
    kinds = {(start.local_rank, start.device, start.backend, start.framework, start.job) for start in starts}
    assert kinds == {(0, "cpu", "gloo", f"torch-{torch.__version__}", "17")}
    assert len({start.pid for start in starts} - {None}) == ranks


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
    assert odd.text.count("--batch-size 65 does not divide by 2: each rank takes 32 windows, 64 together") == 1
    assert "does not divide" not in even.text


def test_comparison_sees_ranks_that_train_on_the_same_windows(alone: Outcome, tasks: Tasks) -> None:
    """Where all ranks take the share of rank 0, the parameters differ by far more than the tolerance."""
    code = (
        "import torch.utils.data as u; S = u.DistributedSampler\n"
        "class Wrong(S):\n"
        "    def __init__(self, dataset, **more): super().__init__(dataset, rank=0, **more)\n"
        "u.DistributedSampler = Wrong\n"
    )
    outcome = tasks(2, *SMALL, "--double", before=code)

    assert largest_difference(outcome, alone) > 1e6 * IN_FLOAT64


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


@pytest.mark.full
def test_second_run_is_the_same(tasks: Tasks) -> None:
    """A second run of 50 steps on four ranks has the same metrics, timings aside, and ends with the same parameters."""
    first, second = tasks(4, *SMALL), tasks(4, *SMALL)

    assert first.fingerprint == second.fingerprint
    assert first.metrics == second.metrics


def test_columns_of_the_metrics(alone: Outcome) -> None:
    """The columns of metrics.csv are those that the page names, in this order."""
    assert [*alone.table()[0]] == [
        *("epoch", "train_loss", "val_loss", "val_mae", "val_rmse", "epoch_time_sec", "throughput_samples_per_sec"),
        *("data_load_time_sec", "compute_time_sec", "gpu_util_avg", "cpu_util_avg"),
    ]


def better_baseline(printed: str) -> float:
    """Return the smaller val_mae of the baselines in the output of a training."""
    return min(float(mae) for mae in re.findall(r"baseline .*val_mae ([\d.]+)", printed))


def test_files_agree_with_logs(two_ranks: Outcome) -> None:
    """What rank 0 prints of an epoch is what the files hold, and each rank has a row of each epoch and a log."""
    outcome = two_ranks
    printed = outcome.ranks[0]["stdout"]
    epochs = re.findall(r"^epoch (\d+)/2  train_loss (\S+)  val_loss (\S+)  val_mae", printed, re.MULTILINE)

    assert epochs == [(row["epoch"], row["train_loss"], row["val_loss"]) for row in outcome.metrics]
    assert [row["epoch"] for row in outcome.metrics] == ["1", "2"]
    assert list(outcome.table("timings.csv")[0]) == COLUMNS.split(",")
    assert [(row["rank"], row["host"], row["epoch"]) for row in outcome.table("timings.csv")] == [
        (str(rank), f"node{rank}", str(epoch)) for epoch in (1, 2) for rank in (0, 1)
    ]
    for rank, output in enumerate(outcome.ranks):
        log = (outcome.folder / f"rank_{rank}.log").read_text()
        assert log.splitlines() == output["stdout"].splitlines()


# Resume --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [3, pytest.param(2, marks=pytest.mark.full)])
def test_resume_is_bit_identical(ranks: int, tasks: Tasks) -> None:
    """One epoch and a resume end with the parameters and the metrics of a training without a break, bit for bit."""
    options = ("--days=7", "--max-steps=25", f"--batch-size={24 * ranks}")
    in_one_go = tasks(ranks, *options, "--epochs=2")
    first = tasks(ranks, *options, "--epochs=1")
    resumed = tasks(ranks, *options, "--epochs=2", "--resume", folder=first.folder)

    assert resumed.fingerprint == in_one_go.fingerprint
    assert resumed.metrics == in_one_go.metrics
    assert "resuming after epoch 1" in resumed.text
    assert [row["epoch"] for row in resumed.table("timings.csv")[::ranks]] == ["1", "2"]


def test_killed_while_it_saves(tasks: Tasks) -> None:
    """A rank that is killed between two files of an epoch costs no row of a table and leaves no part of a file."""
    options = ("--days=7", "--epochs=1", "--max-steps=2")
    killed = tasks(2, *options, before=KILLED_BEFORE_RENAME.format(ends=(".pth", ".csv"), number=2))
    resumed = tasks(2, *options, "--resume", folder=killed.folder)

    assert killed.statuses[0] == 9, killed.text
    assert [row["epoch"] for row in resumed.table("metrics.csv")] == ["1"]
    assert [row["rank"] for row in resumed.table("timings.csv")] == ["0", "1"]
    assert not list(resumed.folder.glob(".*"))


def test_resume_with_nothing_to_resume(two_ranks: Outcome) -> None:
    """With --resume a training begins where there is no checkpoint yet: a job script can always ask for it."""
    assert len(two_ranks.metrics) == 2
    assert "resuming" not in two_ranks.text


# Bad input -----------------------------------------------------------------------------------------------------------

BAD = {
    "negative epochs": (["--epochs=-1"], "--epochs -1: give more than 0"),
    "no number": (["--epochs=ten"], "argument --epochs: invalid int value: 'ten'"),
    "learning rate": (["--learning-rate=nan"], "--learning-rate nan: give more than 0"),
    "batch of more than all": (
        ["--batch-size=5000"],
        "--batch-size 5000: 2 ranks would take 2500 windows each, of only 1589",
    ),
    "share of more than all": (["--days=1", "--batch-size=207"], "2 ranks would take 104 windows each, of only 207"),
    "unknown option": (["--epoch-count=3"], "unrecognized arguments: --epoch-count=3"),
    "missing data": (["--data=nowhere.h5"], "cannot read --data nowhere.h5 as HDF5: no such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_by_one_rank(case: str, tasks: Tasks) -> None:
    """Bad input ends all ranks with status 2, one of them says what is wrong, and no results are written."""
    options, message = BAD[case]
    outcome = tasks(2, "--days=7", *options)

    assert outcome.statuses == [2, 2], outcome.text
    assert len(outcome.errors) == 1
    assert message in outcome.errors[0]
    assert not (outcome.folder / "metrics.csv").exists()


def test_results_are_not_overwritten(alone: Outcome, tasks: Tasks) -> None:
    """A training without --resume leaves the results of another alone."""
    before = {path.name: path.read_bytes() for path in alone.folder.iterdir()}
    outcome = tasks(2, *SMALL, folder=alone.folder)

    assert outcome.statuses == [2, 2], outcome.text
    said = "already holds checkpoint_latest.pth: give another folder, or --resume to continue there"
    assert said in outcome.errors[0]
    assert {path.name: path.read_bytes() for path in alone.folder.iterdir()} == before


@pytest.mark.parametrize("obstacle", ["a file", "below a file"])
def test_results_folder_that_cannot_be(obstacle: str, tmp_path: Path, tasks: Tasks) -> None:
    """A results folder that cannot be made is refused before the training begins."""
    (tmp_path / "file").write_text("kept")
    folder = tmp_path / "file" / "results" if obstacle == "below a file" else tmp_path / "file"
    outcome = tasks(2, *SMALL, folder=folder)

    assert outcome.statuses == [2, 2], outcome.text
    assert len(outcome.errors) == 1
    assert outcome.errors[0].startswith(f"error: cannot write to --results {folder}: ")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("damage", ["cut", "a flipped bit", "of another model", "of nothing"])
def test_checkpoint_that_cannot_be_resumed(damage: str, alone: Outcome, tasks: Tasks, tmp_path: Path) -> None:
    """A damaged checkpoint, and one of another model, are refused by name and kept."""
    folder = tmp_path / "results"
    if damage != "of another model":
        shutil.copytree(alone.folder, folder)
    else:
        folder = tasks(1, "--days=7", "--epochs=1", "--max-steps=2", "--hidden=8").folder
    path = folder / "checkpoint_latest.pth"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:2000])
    if damage == "a flipped bit":
        flip_a_bit(path)
    if damage == "of nothing":
        torch.save({}, path)
    content = path.read_bytes()
    outcome = tasks(2, *SMALL, "--resume", folder=folder)

    assert outcome.statuses == [2, 2], outcome.text
    expected = f"{path} is damaged: delete it" if damage in ("cut", "a flipped bit") else "is of another model"
    assert expected in outcome.errors[0]
    assert path.read_bytes() == content


STARTS = {
    "no srun": ("del e['SLURM_STEP_ID']", "in a job, start this program with srun"),
    "unknown backend": ("e['BACKEND'] = 'glue'", "BACKEND is 'glue': give gloo or nccl"),
    "no GPU": ("e['BACKEND'] = 'nccl'", "BACKEND is nccl, which needs GPUs, and PyTorch sees none"),
    "no address": (
        "del e['MASTER_ADDR']; e['SLURM_LAUNCH_NODE_IPADDR'] = '10.0.0.1'",
        'MASTER_ADDR is not set; in the job script: export MASTER_ADDR="$(scontrol show hostnames',
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_wrong_start_is_said_by_one_task(case: str, tasks: Tasks) -> None:
    """Tasks that cannot meet end by themselves with status 2, and only the first says why."""
    if case == "no GPU" and torch.cuda.is_available():
        pytest.skip("here is a GPU")
    code, message = STARTS[case]
    outcome = tasks(2, *SMALL, before=code)

    assert outcome.statuses == [2, 2], outcome.text
    assert len(outcome.errors) == 1
    assert message in outcome.errors[0]


def test_variables_of_the_batch_shell_do_not_count(two_ranks: Outcome) -> None:
    """RANK, LOCAL_RANK and WORLD_SIZE that a job script exported are overwritten by what Slurm says to each task."""
    assert two_ranks.fingerprint
    assert "DDP on 2 ranks on 2 nodes" in two_ranks.text


def test_ranks_on_fewer_nodes_than_the_step_has(tasks: Tasks) -> None:
    """Ranks that run on fewer nodes than Slurm allotted to the step end at once."""
    outcome = tasks(2, *SMALL, before="e['SLURM_STEP_NUM_NODES'] = '4'")

    assert outcome.statuses == [2, 2], outcome.text
    assert outcome.errors == ["error: 2 ranks run on 2 nodes, but the step has 4"]


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


@pytest.mark.parametrize("wrong", [(), ("--batch-size=5000",), ("--resume", "--hidden=8")])
def test_no_thread_outlives_the_process_group(wrong: tuple[str, ...], alone: Outcome, tasks: Tasks) -> None:
    """When a rank ends, well or with an error, gloo's threads have ended: one that is left may abort the process."""
    folder = alone.folder if "--resume" in wrong else None
    outcome = tasks(2, "--days=7", "--epochs=1", "--max-steps=5", *wrong, before=COUNT_THREADS, folder=folder)

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
    """Import the module of the example."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("traffic_data", EXAMPLES / "traffic_data.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["traffic_data"] = module
    spec.loader.exec_module(module)
    del sys.modules["traffic_data"]
    return module


@pytest.fixture(scope="module")
def made(traffic_data: Any) -> Any:
    """Make a week of synthetic speeds."""
    return traffic_data.make_speeds(days=7)


MARCH = 1330560000 * 10**9
"""Thursday, 1 March 2012, in nanoseconds: the first day of METR-LA."""

FIVE_MINUTES = 300 * 10**9


@pytest.mark.parametrize("key", ["df", "speed"])
def test_hdf5_is_read(key: str, made: Any, traffic_data: Any, tmp_path: Path) -> None:
    """A file in the form of METR-LA or PEMS-BAY gives speeds, times of day and weekends; a gap is filled as missing."""
    mph = made.mph.astype(np.float64)
    times = MARCH + FIVE_MINUTES * np.arange(len(mph))
    mph[5, 3] = np.nan
    keep = np.arange(len(mph)) // 12 != 26  # an hour that the table leaves out, as summer time does
    speeds = traffic_data.read_hdf5(write_table(tmp_path / "speeds.h5", key, mph[keep], times[keep]))
    expected = made.mph.copy()
    expected[5, 3] = 0
    expected[~keep] = 0

    assert np.array_equal(speeds.mph, expected)
    assert speeds.slots.tolist() == (np.arange(len(mph)) % 288).tolist()
    assert [int(speeds.weekend[288 * day]) for day in range(7)] == [0, 0, 1, 1, 0, 0, 0]


def test_training_on_hdf5(made: Any, tasks: Tasks, tmp_path: Path) -> None:
    """The training reads a file in the form of METR-LA, generated here, and comes to the same as without the file."""
    times = MARCH - 3 * 288 * FIVE_MINUTES + FIVE_MINUTES * np.arange(len(made.mph))  # a Monday
    path = write_table(tmp_path / "generated.h5", "df", made.mph.astype(np.float64), times)
    outcome = tasks(2, f"--data={path}", "--epochs=1", "--max-steps=5")
    without = tasks(2, "--days=7", "--epochs=1", "--max-steps=5")

    assert outcome.metrics == without.metrics
    assert "speeds: file generated.h5; 24 sensors" in outcome.text


def no_table(path: Path, mph: np.ndarray, times: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["speeds"] = mph


WRONG = {
    "no HDF5": (lambda path, mph, times: path.write_text("text"), "as HDF5: "),
    "no table": (no_table, "holds 0 tables of speeds and should hold one"),
    "other shape": (
        lambda path, mph, times: write_table(path, "df", mph[:-1], times),
        "block0_values has the shape (99, 24); with 100 times and 24 sensors it should be (100, 24)",
    ),
    "times that fall": (lambda path, mph, times: write_table(path, "df", mph, times[::-1]), "should hold rising times"),
    "other interval": (
        lambda path, mph, times: write_table(path, "df", mph, times // 5 + MARCH),
        "the times in axis1 are not 5 minutes apart",
    ),
    "too short": (lambda path, mph, times: write_table(path, "df", mph, times), "100 times are too few for 2 ranks"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_hdf5_is_refused(case: str, made: Any, tasks: Tasks, tmp_path: Path) -> None:
    """A file in another form ends all ranks with one sentence that says what is wrong with it."""
    write, message = WRONG[case]
    path = tmp_path / "wrong.h5"
    write(path, made.mph[:100].astype(np.float64), MARCH + FIVE_MINUTES * np.arange(100))
    outcome = tasks(2, f"--data={path}")

    assert outcome.statuses == [2, 2], outcome.text
    assert len(outcome.errors) == 1
    assert message in outcome.errors[0]


def test_synthetic_speeds(made: Any, traffic_data: Any) -> None:
    """The same seed gives the same speeds, another seed others, and weekday mornings are slower than nights."""
    again, other = traffic_data.make_speeds(days=7), traffic_data.make_speeds(days=7, seed=1)
    morning, night = (made.mph[12 * hour : 12 * hour + 12] for hour in (8, 3))

    assert np.array_equal(again.mph, made.mph)
    assert not np.array_equal(other.mph, made.mph)
    assert morning[morning > 0].mean() < night[night > 0].mean() - 5
    assert 0.005 < (made.mph == 0).mean() < 0.05
    assert 1 <= made.mph[made.mph > 0].min() < made.mph.max() <= 80


def test_a_jam_grows_against_the_traffic(traffic_data: Any) -> None:
    """Behind a closed stretch the cells stop one after the other, and the cells after it stay free."""
    road = np.random.default_rng(0)
    traffic_data_open = traffic_data.open_lanes
    traffic_data.open_lanes = lambda days, rng: [(12 * 360, 14 * 360, 0, 30, 0.1)]
    try:
        hour = traffic_data.drive(1, road)[0, 12 * 12 : 14 * 12]
    finally:
        traffic_data.open_lanes = traffic_data_open
    first_slow = [int(np.argmax(hour[:, cell] < 30)) for cell in (29, 27, 24)]

    assert hour[-1, 29] < 30
    assert first_slow == sorted(first_slow)
    assert first_slow[0] < first_slow[-1]
    assert hour[-1, 36] > 60


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

MASKS = (
    Mask(r"pid=\d+", "pid=<pid>", "a fresh number for each process"),
    Mask(r"job=\d+", "job=<id>", "a fresh number for each job"),
    Mask(r"params=\w+", "params=<hash>", "processors round in different ways"),
    Mask(r"loss=[\d.]+", "loss=<n>", "processors round in different ways"),
    Mask(r"(train_loss|val_loss|val_mae|val_rmse) [\d.]+", r"\1 <n>", "processors round in different ways"),
)


def test_commands_of_the_docstring_work(reader: Any, pytestconfig: pytest.Config) -> None:
    """The last command at the top of the program undercuts the better baseline, and prints what was recorded."""
    program = EXAMPLES / "train_traffic.py"
    commands = reader.commands(program)

    assert len(commands) == 2
    for command in commands if pytestconfig.getoption("--full") else commands[-1:]:
        run = reader.run(program, command, beside=MODULES)
        assert run.status == 0, f"{command}\n{run.text}"
        last = re.findall(r"epoch \d.*val_mae ([\d.]+)", run.text)[-1]
        assert float(last) < (1 - MARGIN) * better_baseline(run.text)
    reader.compare(program, run, lambda line: True, MASKS)


def test_data_program_shows_the_road(reader: Any) -> None:
    """The command at the top of traffic_data.py prints where and when the road is slow."""
    program = EXAMPLES / "traffic_data.py"
    run = reader.run(program, reader.commands(program)[0])

    assert run.status == 0, run.text
    assert run.lines[0] == "24 sensors, 1.2% of their speeds are missing"
