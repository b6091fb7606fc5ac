"""The guide *Runs that last*: one run in the experiment tracker for each training, however often it is started.

`pytest tests/simulation/test_runs_that_last_tracking.py --full --record` writes what the programs print. Weights &
Biases and MLflow come from the package index into an environment of their own, so their tests only run with `--full`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import forked
from support.programs import edited
from support.reader import Reader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recordings.checking import new_run
from recordings.comparing import ROUNDING

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "runs_that_last"
SETTINGS = EXAMPLES / "settings.csv"

PACKAGES = {"wandb": "0.31.0", "mlflow": "3.17.2"}

KILL = "epoch == 2 and os.kill(os.getpid(), signal.SIGKILL)"
SIGNAL = "if agreed(bool(signals), device):"
APPEND, LOG = '        history.append({"loss": epoch_loss})\n', "            log(epoch, history[epoch])"
ENDINGS = pytest.mark.parametrize(
    ("ending", "resumed"),
    [
        ((SIGNAL, f"if epoch == 2 and done == 3 or {SIGNAL[3:]}"), "in epoch 2 after batch 3"),
        ((APPEND, f"        {KILL}\n{APPEND}"), "in epoch 2 after batch 0"),
        ((LOG, f"            {KILL}\n{LOG}"), "in epoch 3 after batch 0"),
        ((LOG, f"{LOG}; {KILL}"), "in epoch 3 after batch 0"),
    ],
    ids=["saved within an epoch", "killed before the save", "killed before the log", "killed after the log"],
)

BEFORE = """
import atexit, os, sys
leave = os._exit  # the harness calls it, and would leave out what trackers do at exit
os._exit = lambda status: (atexit._run_exitfuncs(), leave(status))
sys.path.append({site!r})
"""

READ_WANDB = """
import json, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

def records(path):  # the format of LevelDB's log
    data, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield Record.FromString(record)
            record = b""

newest = sorted(Path("runs/3/wandb").glob("offline-run-*/*.wandb"))[-1]
rows = [{item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in records(newest) if record.HasField("history")]
names = [record.run.display_name for record in records(newest) if record.HasField("run")]
print(json.dumps([names, [[row["_step"], row["loss"]] for row in rows]]))
"""

READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
(experiment,) = (each for each in client.search_experiments() if each.name == "my-sweep")
runs = client.search_runs([experiment.experiment_id])
print(json.dumps({run.info.run_name: [[metric.step, metric.value] for metric in
    client.get_metric_history(run.info.run_id, "loss")] for run in runs}))
print(len(runs), *{run.info.status for run in runs})
"""


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Run]:
    """Run a program in a folder, with some of its text replaced."""
    with forked.running(EXAMPLES, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def trackers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Weights & Biases and MLflow; return their Python."""
    folder = tmp_path_factory.mktemp("trackers") / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, *map("==".join, PACKAGES.items())], check=True)
    return python


@pytest.fixture(scope="module")
def whole(run: forked.Run, tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """Return the epochs of an undisturbed training of row 3, and their losses."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copy(SETTINGS, folder)
    training = run("tracked.py", 2, 3, folder=folder)
    assert training.statuses == [0, 0], training.text
    assert len(training.losses) == 5
    return [pytest.approx([epoch, loss], abs=1e-6) for epoch, loss in enumerate(training.losses)]


def read(python: Path, program: str, *arguments: str, folder: Path) -> str:
    """Run a program with the Python of the trackers, and return what it printed."""
    command = [str(python), "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, check=True, text=True, stdout=subprocess.PIPE).stdout


def test_killed_training_is_one_run_in_tensorboard(
    reader: Reader, run: forked.Run, whole: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after an epoch was logged, and continued as the page says, a training shows each epoch once."""
    program = EXAMPLES / "tracked.py"
    beside = [SETTINGS, EXAMPLES / "with_tensorboard.py"]
    shutil.copy(SETTINGS, reader.folder)
    killed = run("tracked.py", 2, 3, folder=reader.folder, edit=(LOG, f"{LOG}; {KILL}"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (command,) = reader.commands(program)
    printed = reader.run(program, command, beside)

    assert killed.statuses[0] == -9, killed.text
    assert in_tensorboard(reader.folder / "runs" / "3" / "tensorboard") == whole
    reader.compare(program, printed, lambda line: "epoch" in line or line.startswith(("rank ", "row ")), ROUNDING)


@ENDINGS
def test_stopped_training_is_one_run(
    run: forked.Run, whole: list[list[float]], tmp_path: Path, ending: tuple[str, str], resumed: str
) -> None:
    """However a start ended, TensorBoard shows the curve of an undisturbed training, which rank 0 alone wrote."""
    shutil.copy(SETTINGS, tmp_path)
    run("tracked.py", 2, 3, folder=tmp_path, edit=ending)
    training = run("tracked.py", 2, 3, folder=tmp_path)

    assert training.statuses == [0, 0], training.text
    assert f"resumed {resumed}" in training.text
    folder = tmp_path / "runs" / "3" / "tensorboard"
    assert in_tensorboard(folder) == whole
    assert len(list(folder.iterdir())) == 2  # one file for each start


def in_tensorboard(folder: Path) -> list[list[float]]:
    """Return steps and values as TensorBoard shows them."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return [[event.step, event.value] for event in events.Scalars("loss")]


@pytest.mark.full
@ENDINGS
def test_stopped_training_is_one_run_in_wandb(
    run: forked.Run, trackers: Path, whole: list[list[float]], tmp_path: Path, ending: tuple[str, str], resumed: str
) -> None:
    """Offline, each start writes a folder with the same id, and the newest has every epoch of the training once."""
    train(run, trackers, tmp_path, "with_wandb.py", ending, resumed)
    kept = (tmp_path / "runs" / "3" / "tracker-id").read_text()
    names, epochs = json.loads(read(trackers, READ_WANDB, folder=tmp_path))

    folders = list((tmp_path / "runs" / "3" / "wandb").glob("offline-run-*"))
    assert [folder.name.split("-")[-1] for folder in folders] == [kept, kept]
    assert names == ["row 3"]
    assert epochs == whole


@pytest.mark.full
@ENDINGS
def test_stopped_training_is_one_run_in_mlflow(
    run: forked.Run, trackers: Path, whole: list[list[float]], tmp_path: Path, ending: tuple[str, str], resumed: str
) -> None:
    """The database of a training has one run, with every epoch once."""
    train(run, trackers, tmp_path, "with_mlflow.py", ending, resumed)
    runs, states = read(trackers, READ_MLFLOW, "sqlite:///runs/3/mlflow.db", folder=tmp_path).splitlines()

    assert states == "1 FINISHED"
    assert json.loads(runs) == {"row 3": whole}


@pytest.mark.full
def test_runs_of_mlflow_are_merged(run: forked.Run, trackers: Path, reader: Reader) -> None:
    """`merge_mlflow.py` puts the runs of all rows into one database, also when it is run again."""
    program = EXAMPLES / "merge_mlflow.py"
    edited(program, reader.folder)
    for row in (1, 2):
        train(run, trackers, reader.folder, "with_mlflow.py", (LOG, f"{LOG}; {KILL}"), "in epoch 3 after batch 0", row)
    command = [str(trackers), program.name]
    for _ in range(2):
        merge = subprocess.run(command, cwd=reader.folder, check=True, text=True, stdout=subprocess.PIPE)
    merged, states = read(trackers, READ_MLFLOW, "sqlite:///mlflow.db", folder=reader.folder).splitlines()

    assert states == "2 FINISHED"
    for row in (1, 2):
        alone = read(trackers, READ_MLFLOW, f"sqlite:///runs/{row}/mlflow.db", folder=reader.folder).splitlines()[0]
        assert json.loads(alone) == {f"row {row}": json.loads(merged)[f"row {row}"]}
    versions = {"python": sys.version.split()[0], "mlflow": PACKAGES["mlflow"]}
    printed = new_run(program, "python merge_mlflow.py", merge.stdout, where="process", exit_code=0, versions=versions)
    reader.compare(program, printed, bool, ROUNDING)


def train(
    run: forked.Run, python: Path, folder: Path, tracker: str, ending: tuple[str, str], resumed: str, row: int = 3
) -> None:
    """Train a row with a tracker in two starts, the first of which ends early."""
    shutil.copy(SETTINGS, folder)
    (site,) = python.parents[1].glob("lib/python3*/site-packages")
    before, chosen = BEFORE.format(site=str(site)), ("from with_tensorboard", f"from {Path(tracker).stem}")
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    run("tracked.py", 2, row, folder=folder, edits=[chosen, ending], before=before, **quiet)
    training = run("tracked.py", 2, row, folder=folder, edits=[chosen], before=before, **quiet)
    assert training.statuses == [0, 0], training.text
    assert f"resumed {resumed}" in training.text
