"""The programs of the torchrun guide in every layout, against one process, and with everything that can be wrong."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import forked
from support.accidents import signal_at_import
from support.comparing import Mask
from support.damage import flip_a_bit
from support.killed_rename import KILLED_BEFORE_RENAME

from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torchrun" / "full"
MODULES = [EXAMPLES / name for name in ("processes.py", "image_data.py", "epoch_files.py", "train_distributed.py")]

AFTER_ONE_EPOCH = 1e-5
"""Largest relative difference of the loss on one process and on many after one epoch: floats added in another order."""

AT_THE_END = 0.02
"""The same after ten epochs. Each of 220 steps builds on the rounding of those before: 1e-4 to 1e-3 were seen."""

ACCURACY = 0.97
VISION_ACCURACY = 0.95


class Outcome(forked.Outcome):
    """What came of a run; its folder is the checkpoint directory."""

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Rows of metrics.csv."""
        return [{name: float(value) for name, value in row.items()} for row in self.table()]


class Ranks(forked.Forked):
    """Runs the programs of the guide."""

    def __call__(
        self,
        program: str,
        *arguments: object,
        nodes: int = 1,
        processes: int = 1,
        folder: Path | None = None,
        before: str = "",
        **environ: str,
    ) -> Outcome:
        """Run a program with a checkpoint directory, its own unless one is given."""
        folder = folder or self.new_folder()
        argv = [str(EXAMPLES / program), f"--checkpoint-dir={folder}", *map(str, arguments)]
        return Outcome(self.run(argv, nodes=nodes, processes=processes, before=before, environ=environ), folder)


pytestmark = pytest.mark.usefixtures("quick_start")


def interrupted(outcome: Outcome, folder: Path) -> Path:
    """Copy what a training had left after its first epoch; return the copy."""
    shutil.copytree(outcome.folder, folder)
    for path in folder.iterdir():
        if path.name != "checkpoint_epoch_1.pt":
            path.unlink()
    return folder


@pytest.fixture(scope="module")
def ranks(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Start the ranks."""
    with forked.forking(EXAMPLES) as process:
        yield Ranks(process, tmp_path_factory.mktemp("ranks"))


# The same training on all layouts ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_process(ranks: Ranks, pytestconfig: pytest.Config) -> Outcome:
    """Train the oracle: one process that sees the whole batch."""
    outcome = ranks("train_distributed.py", f"--epochs={10 if pytestconfig.getoption('--full') else 3}")
    assert outcome.statuses == [0], outcome.text
    return outcome


LAYOUTS = [
    (2, 2, 3),
    *(pytest.param(*layout, marks=pytest.mark.full) for layout in ((2, 2, 10), (1, 4, 1), (2, 1, 1), (4, 1, 1))),
]


@pytest.mark.parametrize(("nodes", "processes", "epochs"), LAYOUTS)
def test_training_equals_one_process(
    nodes: int, processes: int, epochs: int, one_process: Outcome, ranks: Ranks
) -> None:
    """Every layout has the losses of one process, to rounding after one epoch and to its growth at the end."""
    outcome = ranks("train_distributed.py", f"--epochs={epochs}", nodes=nodes, processes=processes)
    assert outcome.fingerprint
    found, expected = outcome.metrics, one_process.metrics

    assert len(found) == epochs
    for name in ("train_loss", "test_loss"):
        assert found[0][name] == pytest.approx(expected[0][name], rel=AFTER_ONE_EPOCH)
        assert found[-1][name] == pytest.approx(expected[epochs - 1][name], rel=AT_THE_END)
    assert epochs < 10 or found[-1]["test_accuracy"] >= ACCURACY
    where = f"nodes x processes: {nodes} x {processes}, backend: gloo), master node: node0"
    assert outcome.ranks[0]["stdout"].count(f"on {nodes * processes} CPU processes ({where}") == 1
    starts = [line for line in parse_rank_lines(outcome.text.splitlines()) if isinstance(line, RankStart)]
    assert [start.rank for start in starts] == [*range(nodes * processes)]
    assert [start.host for start in starts] == [f"node{rank // processes}" for rank in range(nodes * processes)]
    assert [start.local_rank for start in starts] == [rank % processes for rank in range(nodes * processes)]
    assert {(start.device, start.backend, start.job) for start in starts} == {("cpu", "gloo", None)}
    assert {start.framework for start in starts} == {f"torch-{version('torch')}"}
    assert len({start.pid for start in starts} - {None}) == nodes * processes
    assert {path.name for path in outcome.folder.iterdir()} == {
        "metrics.csv",
        "curves.png",
        *(f"checkpoint_epoch_{epoch}.pt" for epoch in range(1, epochs + 1)),
    }


def test_comparison_sees_ranks_that_train_on_the_same_images(one_process: Outcome, ranks: Ranks) -> None:
    """Where all ranks take the images of rank 0, the loss differs by far more than the tolerance."""
    code = (
        "import torch.utils.data as u; S = u.DistributedSampler\n"
        "class Wrong(S):\n"
        "    def __init__(self, dataset, world, rank, **more): super().__init__(dataset, world, 0, **more)\n"
        "u.DistributedSampler = Wrong"
    )
    outcome = ranks("train_distributed.py", "--epochs=1", processes=2, before=code)

    assert abs(outcome.metrics[0]["train_loss"] / one_process.metrics[0]["train_loss"] - 1) > 100 * AFTER_ONE_EPOCH


@pytest.fixture(scope="module")
def vision(ranks: Ranks) -> Outcome:
    """Train the network for images on two processes, in float32."""
    return ranks("train_vision.py", "--epochs=1", "--batch-size=256", processes=2)


def test_vision_on_two_processes(vision: Outcome, ranks: Ranks) -> None:
    """One process and two, and a batch in pieces that are recomputed, come to nearly the same loss."""
    one = ranks("train_vision.py", "--epochs=1", "--batch-size=256")
    pieces = ranks("train_vision.py", "--epochs=1", "--batch-size=256", "--accumulate=4", "--recompute", processes=2)

    # on another number of ranks the images are shifted otherwise
    assert one.metrics[0]["train_loss"] == pytest.approx(vision.metrics[0]["train_loss"], rel=0.05)
    assert pieces.metrics[0]["train_loss"] == pytest.approx(vision.metrics[0]["train_loss"], rel=AFTER_ONE_EPOCH)


@pytest.mark.parametrize("precision", ["float16", pytest.param("bfloat16", marks=pytest.mark.full)])
def test_vision_in_mixed_precision(precision: str, vision: Outcome, ranks: Ranks) -> None:
    """Mixed precision begins with nearly the loss of float32, and with float16 the scaler is in the checkpoint."""
    options = ("--batch-size=256", f"--precision={precision}")
    mixed = ranks("train_vision.py", "--epochs=1", *options, processes=2)
    resumed = ranks("train_vision.py", "--epochs=2", *options, "--resume", processes=2, folder=mixed.folder)

    assert mixed.metrics[0]["train_loss"] == pytest.approx(vision.metrics[0]["train_loss"], rel=0.02)
    assert mixed.metrics[0]["train_loss"] != vision.metrics[0]["train_loss"]
    assert resumed.statuses == [0, 0], resumed.text


# Resume --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [3, *(pytest.param(number, marks=pytest.mark.full) for number in (2, 4))])
def test_resume_is_bit_identical(processes: int, ranks: Ranks, tmp_path: Path) -> None:
    """A resume after the first of two epochs ends with the parameters of a training without a break, bit for bit."""
    options = ("--epochs=2", f"--batch-size={24 * processes}")
    in_one_go = ranks("train_distributed.py", *options, processes=processes)
    folder = interrupted(in_one_go, tmp_path / "interrupted")
    resumed = ranks("train_distributed.py", *options, "--resume", processes=processes, folder=folder)

    assert resumed.fingerprint == in_one_go.fingerprint
    assert "Resuming after epoch 1" in resumed.text
    assert [row["epoch"] for row in resumed.metrics] == [1, 2]
    assert [row["train_loss"] for row in resumed.metrics] == [row["train_loss"] for row in in_one_go.metrics]


def test_resume_without_warming_up_is_not_bit_identical(ranks: Ranks, tmp_path: Path) -> None:
    """On three processes, without the backward pass before, the resumed parameters differ in some bits."""
    run = (
        "import runpy\n"
        "def without(path, **more):\n"
        "    import train_distributed as t\n"
        "    t.warm_up = lambda *_: None\n"
        "    t.run(t.main)\n"
        "runpy.run_path = without"
    )
    options = ("--epochs=2", "--batch-size=36")
    in_one_go = ranks("train_distributed.py", *options, processes=3, before=run)
    folder = interrupted(in_one_go, tmp_path / "interrupted")
    resumed = ranks("train_distributed.py", *options, "--resume", processes=3, folder=folder, before=run)

    assert resumed.fingerprint != in_one_go.fingerprint
    assert resumed.metrics[-1]["train_loss"] == pytest.approx(in_one_go.metrics[-1]["train_loss"], rel=AT_THE_END)


def test_resume_on_another_number_of_processes(ranks: Ranks, tmp_path: Path) -> None:
    """A checkpoint of two processes goes on with four, and has the losses that it would have had."""
    in_one_go = ranks("train_distributed.py", "--epochs=2", processes=2)
    folder = interrupted(in_one_go, tmp_path / "interrupted")
    resumed = ranks("train_distributed.py", "--epochs=2", "--resume", processes=4, folder=folder)

    assert resumed.metrics[-1]["train_loss"] == pytest.approx(in_one_go.metrics[-1]["train_loss"], rel=AFTER_ONE_EPOCH)


SIGNAL_AFTER = """
import os, signal, sys
sys.path.insert(0, {examples!r})
import train_requeue as r
step = r.train_step
made = []
def train_step(*arguments):
    made.append(step(*arguments))
    if len(made) == {steps} and os.environ["RANK"] == "{rank}":
        os.kill(os.getpid(), signal.SIGUSR1)
    return made[-1]
r.train_step = train_step
import runpy
runpy.run_path = lambda *_, **__: r.run(r.main)
"""


@pytest.mark.parametrize("processes", [3, pytest.param(2, marks=pytest.mark.full)])
def test_requeue_stops_at_a_signal_and_goes_on_within_the_epoch(processes: int, ranks: Ranks) -> None:
    """A signal to one rank ends all with status 75 after the same step; the next run ends as one without a signal."""
    batch = f"--batch-size={24 * processes}"
    in_one_go = ranks("train_requeue.py", "--epochs=2", batch, processes=processes)
    code = SIGNAL_AFTER.format(examples=str(EXAMPLES), steps=17, rank=processes - 1)
    stopped = ranks("train_requeue.py", "--epochs=2", batch, processes=processes, before=code)
    resumed = ranks("train_requeue.py", "--epochs=2", batch, processes=processes, folder=stopped.folder)

    assert stopped.statuses == [75] * processes, stopped.text
    assert "Stopping after step 17: SIGUSR1" in stopped.ranks[0]["stdout"]
    assert "Resuming after step 17" in resumed.ranks[0]["stdout"]
    assert resumed.fingerprint == in_one_go.fingerprint
    epochs = [re.findall(r"Epoch .*", outcome.ranks[0]["stdout"]) for outcome in (in_one_go, resumed)]
    assert epochs[0] == epochs[1]  # also that of the interrupted epoch


WRITE_IMAGES = """
import os, sys
sys.path.insert(0, {examples!r})
import train_requeue as r
step = r.train_step
def train_step(training, images, labels):
    with open({file!r}, "a") as file:
        file.writelines(image.numpy().tobytes().hex() + "\\n" for image in images)
    return step(training, images, labels)
r.train_step = train_step
import runpy
runpy.run_path = lambda *_, **__: r.run(r.main)
"""


def test_requeue_goes_on_with_other_ranks(ranks: Ranks, tmp_path: Path) -> None:
    """A signal during the imports stops after one step; four ranks, with other shares, train on the other images."""
    options = ("train_requeue.py", "--epochs=1", "--batch-size=70")
    code = WRITE_IMAGES.format(examples=str(EXAMPLES), file=str(tmp_path / "images"))
    stopped = ranks(*options, processes=2, before=signal_at_import("torch") + code)
    resumed = ranks(*options, processes=4, before=code, folder=stopped.folder)
    trained = (tmp_path / "images").read_text().split()

    assert stopped.statuses == [75, 75], stopped.text
    assert "Stopping after step 1: SIGUSR1" in stopped.text
    assert resumed.fingerprint
    assert len(trained) == len(set(trained)) == 70 + 19 * 72  # all 1438


@pytest.mark.parametrize(("save_every", "said"), [(50, "the loss of epoch 1 is nan"), (1, "after step 2, not all of")])
def test_requeue_gives_up_a_training_without_hope(save_every: int, said: str, ranks: Ranks, tmp_path: Path) -> None:
    """A value that is no number ends all ranks with the status 78, for the job script too, and is never saved."""
    arguments = ("--epochs=2", "--learning-rate=1e30", f"--save-every={save_every}")
    notes = tmp_path / "job"
    outcome = ranks("train_requeue.py", *arguments, processes=2, JOB_NOTES=str(notes))
    saved = [torch.load(path, weights_only=True)["model"] for path in outcome.folder.rglob("step_*.pt")]

    assert outcome.statuses == [78, 78], outcome.text
    assert len(outcome.errors) == 1
    assert said in outcome.errors[0]
    assert "a restart would not help" in outcome.errors[0]
    assert Path(f"{notes}.status").read_text() == "78\n"
    assert len(saved) == (save_every == 1)
    assert all(value.isfinite().all() for tensors in saved for value in tensors.values())


# Data ----------------------------------------------------------------------------------------------------------------


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write an IDX file of bytes, packed where its name says so."""
    content = (
        struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()
    )
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Generate files in the form of MNIST: a white square whose place is the class."""
    rng = np.random.default_rng(0)
    for name, count, suffix in (("train", 256, ".gz"), ("t10k", 100, "")):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 28, 28))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[row * 9 : row * 9 + 8, column * 7 : column * 7 + 7] = 250
        write_idx(tmp_path / f"{name}-images-idx3-ubyte{suffix}", images)
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte{suffix}", labels)
    return tmp_path


def test_mnist_files_are_read(mnist: Path, ranks: Ranks) -> None:
    """Training reads MNIST's files, packed and not, and learns from them."""
    outcome = ranks("train_distributed.py", "--dataset=mnist", f"--data-dir={mnist}", "--epochs=8", processes=2)

    assert outcome.statuses == [0, 0], outcome.text
    assert outcome.metrics[-1]["test_accuracy"] > 0.9


def test_damaged_mnist_file_is_named(mnist: Path, ranks: Ranks) -> None:
    """A file that was not downloaded to its end is named."""
    path = mnist / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    outcome = ranks("train_distributed.py", "--dataset=mnist", f"--data-dir={mnist}", processes=2)

    assert outcome.statuses == [2, 2], outcome.text
    assert outcome.errors == [f"error: {path} is damaged, or no IDX file: download it again"]


def test_folders_of_images_are_read(tmp_path: Path, ranks: Ranks) -> None:
    """Training reads coloured and grey images of several sizes from class folders, with workers as without."""
    from matplotlib.image import imsave

    rng = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (tmp_path / name).mkdir()
        for number in range(20):
            pixels = rng.integers(0, 90, (20 + number, 30, 3)).astype(np.uint8) + 160 * label
            imsave(tmp_path / name / f"{number}.png", pixels.astype(np.uint8))
    options = ("--dataset=folder", f"--data-dir={tmp_path}", "--batch-size=8", "--epochs=3")
    outcome = ranks("train_distributed.py", *options, processes=2)
    with_workers = ranks("train_distributed.py", *options, "--num-workers=1", processes=2)

    assert outcome.metrics[-1]["test_accuracy"] == 1
    assert with_workers.fingerprint == outcome.fingerprint


def test_every_test_image_is_counted_once(one_process: Outcome, ranks: Ranks) -> None:
    """The accuracy is a whole number of the 359 test images, however many ranks share them."""
    for outcome in (one_process, ranks("train_distributed.py", "--epochs=1", "--batch-size=63", processes=3)):
        right = outcome.metrics[0]["test_accuracy"] * 359

        assert right == pytest.approx(round(right), abs=1e-9)


# Bad input -----------------------------------------------------------------------------------------------------------

BAD = {
    "missing data": (["--dataset=mnist", "--data-dir=nowhere"], "nowhere has no train-images-idx3-ubyte and no"),
    "missing folder": (["--dataset=folder", "--data-dir=nowhere"], "there is no folder nowhere"),
    "batch of more than all": (["--batch-size=5000"], "--batch-size 5000 is more than the 1438 images to train on"),
    "learning rate": (["--learning-rate=nan"], "argument --learning-rate: nan: give more than 0"),
    "device": (["--device=cuda"], "sees no GPU on node0; install a CUDA build of PyTorch and ask Slurm for GPUs"),
    "no number": (["--epochs=ten"], "argument --epochs: invalid int value: 'ten'"),
    "workers": (["--num-workers=-1"], "argument --num-workers: -1: give 0 or more"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_by_one_rank(case: str, ranks: Ranks) -> None:
    """Bad input ends all ranks with status 2, one of them says what is wrong, and nothing is written."""
    options, message = BAD[case]
    outcome = ranks("train_distributed.py", *options, processes=2)

    assert outcome.statuses == [2, 2], outcome.text
    assert len(outcome.errors) == 1
    assert message in outcome.errors[0]
    assert not outcome.folder.exists() or not list(outcome.folder.iterdir())


def test_batch_that_does_not_divide(ranks: Ranks) -> None:
    """Three processes take the nearest share of a batch of 64, and one line says so."""
    outcome = ranks("train_distributed.py", "--epochs=1", processes=3)
    line = "--batch-size 64: each of 3 processes takes 21 images, 63 a step"

    assert outcome.statuses == [0, 0, 0], outcome.text
    assert outcome.text.count("--batch-size 64") == outcome.ranks[0]["stdout"].count(line) == 1


def test_gpus_that_torch_does_not_see(ranks: Ranks) -> None:
    """Where Slurm gave GPUs and torch sees none, one line warns before the first step."""
    outcome = ranks("train_distributed.py", "--epochs=1", processes=2, SLURM_GPUS_ON_NODE="2")

    assert outcome.statuses == [0, 0], outcome.text
    assert outcome.text.count("warning: Slurm gave this job GPUs and PyTorch sees none") == 1
    assert outcome.ranks[0]["stdout"].index("warning: ") < outcome.ranks[0]["stdout"].index("Epoch 1")


def test_more_processes_than_images(tmp_path: Path, ranks: Ranks) -> None:
    """Three processes for two images are refused."""
    from matplotlib.image import imsave

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        imsave(tmp_path / name / "1.png", np.zeros((4, 4, 3), np.uint8))
    imsave(tmp_path / "a" / "2.png", np.zeros((4, 4, 3), np.uint8))
    outcome = ranks("train_distributed.py", "--dataset=folder", f"--data-dir={tmp_path}", processes=3)

    assert outcome.statuses == [2, 2, 2], outcome.text
    assert outcome.errors == ["error: 3 processes for 2 images to train on: start fewer"]


def test_checkpoint_directory_that_cannot_be(tmp_path: Path, ranks: Ranks) -> None:
    """A checkpoint directory below a file is refused before the training begins."""
    (tmp_path / "file").write_text("")
    outcome = ranks("train_distributed.py", processes=2, folder=tmp_path / "file" / "checkpoints")

    assert outcome.statuses == [2, 2], outcome.text
    assert outcome.errors == [f"error: cannot make --checkpoint-dir {outcome.folder}: Not a directory"]
    assert "Epoch" not in outcome.text


def test_disk_that_fills(ranks: Ranks) -> None:
    """A disk that is full at the second epoch ends all ranks; the first checkpoint and the metrics are whole."""
    code = (
        "import io, os\n"
        "sync, done = os.fsync, []\n"
        "def fsync(number):\n"
        "    done.append(number)\n"
        "    if len(done) > 4: raise OSError(28, 'No space left on device')\n"
        "    sync(number)\n"
        "os.fsync = fsync"
    )
    outcome = ranks("train_distributed.py", "--epochs=3", processes=2, before=code)
    resumed = ranks("train_distributed.py", "--epochs=3", "--resume", processes=2, folder=outcome.folder)

    assert outcome.statuses == [2, 2], outcome.text
    assert "No space left on device; earlier files are whole" in outcome.errors[0]
    assert resumed.statuses == [0, 0], resumed.text
    assert [row["epoch"] for row in resumed.metrics] == [1, 2, 3]
    assert not list(outcome.folder.glob(".*"))


def test_earlier_checkpoints_are_not_overwritten(one_process: Outcome, ranks: Ranks) -> None:
    """A training without --resume leaves the checkpoints of another alone."""
    before = sorted((path.name, path.stat().st_mtime_ns) for path in one_process.folder.iterdir())
    outcome = ranks("train_distributed.py", processes=2, folder=one_process.folder)

    assert outcome.statuses == [2, 2], outcome.text
    assert re.search(r"holds checkpoint_epoch_\d+\.pt: give --resume or another --checkpoint-dir", outcome.errors[0])
    assert sorted((path.name, path.stat().st_mtime_ns) for path in one_process.folder.iterdir()) == before


def test_damaged_checkpoint_is_passed_over(one_process: Outcome, ranks: Ranks, tmp_path: Path) -> None:
    """Where a bit of the newest checkpoint has flipped, the training continues from the one before, to the same end."""
    folder, epochs = tmp_path / "interrupted", len(one_process.metrics)
    shutil.copytree(one_process.folder, folder)
    flip_a_bit(folder / f"checkpoint_epoch_{epochs}.pt")
    resumed = ranks("train_distributed.py", f"--epochs={epochs}", "--resume", folder=folder)

    assert resumed.text.count(f"warning: {folder / f'checkpoint_epoch_{epochs}.pt'} is damaged") == 1
    assert f"Resuming after epoch {epochs - 1}\n" in resumed.text
    assert resumed.fingerprint == one_process.fingerprint


def test_killed_while_it_saves(ranks: Ranks) -> None:
    """A rank that is killed between checkpoint and table costs no row of the table."""
    killed = ranks(
        "train_distributed.py",
        "--epochs=1",
        processes=2,
        before=KILLED_BEFORE_RENAME.format(ends=(".pt", ".csv"), number=2),
    )
    resumed = ranks("train_distributed.py", "--epochs=1", "--resume", processes=2, folder=killed.folder)

    assert killed.statuses[0] == 9, killed.text
    assert resumed.statuses == [0, 0], resumed.text
    assert [row["epoch"] for row in resumed.metrics] == [1]
    assert not list(resumed.folder.glob(".*"))


@pytest.mark.parametrize("damage", ["cut", "of another model", "of nothing"])
def test_checkpoint_that_cannot_be_resumed(
    damage: str, one_process: Outcome, vision: Outcome, ranks: Ranks, tmp_path: Path
) -> None:
    """A damaged checkpoint, and one of another program, are refused by name and kept."""
    folder = interrupted(vision if damage == "of another model" else one_process, tmp_path / "interrupted")
    path = folder / "checkpoint_epoch_1.pt"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:2000])
    if damage == "of nothing":
        torch.save({}, path)
    content = path.read_bytes()
    outcome = ranks("train_distributed.py", "--resume", processes=2, folder=folder)

    assert outcome.statuses == [2, 2], outcome.text
    expected = f"{folder} holds no checkpoint that is whole" if damage == "cut" else "is of another model"
    assert len(outcome.errors) == 1
    assert expected in outcome.errors[0]
    assert path.read_bytes() == content


def test_without_torchrun_it_says_how(ranks: Ranks) -> None:
    """A program that was started by python alone asks for torchrun and ends with status 2."""
    outcome = ranks("train_distributed.py", before="import os; del os.environ['RANK']")

    assert outcome.statuses == [2]
    assert outcome.errors[0].startswith(
        "error: RANK is not set. Start this program with torchrun: torchrun --standalone"
    )


def test_world_that_is_not_what_slurm_allotted(ranks: Ranks) -> None:
    """Processes on fewer nodes than allotted, and another number than GPUs, end the run at once."""
    fewer_nodes = ranks("train_distributed.py", processes=2, SLURM_NNODES="2")
    fewer_processes = ranks("train_distributed.py", processes=2, SLURM_GPUS_ON_NODE="4")
    two_launchers = ranks("train_distributed.py", processes=4, LOCAL_WORLD_SIZE="2")

    assert fewer_nodes.errors == [
        "error: 2 processes run on 1 nodes, but Slurm allotted 2; "
        "start one torchrun on each of them: srun --ntasks-per-node=1"
    ]
    assert "2 processes run on node0, but Slurm allotted 4; give its one torchrun" in fewer_processes.errors[0]
    assert "4 processes run on node0, but Slurm allotted 2" in two_launchers.errors[0]
    assert {*fewer_nodes.statuses, *fewer_processes.statuses, *two_launchers.statuses} == {2}


# Through torchrun ----------------------------------------------------------------------------------------------------

MASKS = (
    Mask(r"^\[\d\] ", "[<node>] ", "any of the nodes may get rank 0"),
    Mask(r"host=\S+", "host=<node>", "any of the nodes may get rank 0"),
    Mask(r"master node: .*", "master node: <node>", "any of the nodes may get rank 0"),
    Mask(r"pid=\d+", "pid=<pid>", "a fresh number for each process"),
    Mask(r"job=\d+", "job=<id>", "a fresh number for each job"),
    Mask(r"params=\w+", "params=<hash>", "processors round in different ways"),
    Mask(r"loss=[\d.]+", "loss=<n>", "processors round in different ways"),
    Mask(r"Loss: [\d.]+", "Loss: <n>", "processors round in different ways"),
    Mask(r"[\d.]+%", "<n>%", "processors round in different ways"),
)


@pytest.mark.parametrize(
    "program",
    [
        "train_distributed.py",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("train_requeue.py", "train_vision.py")),
    ],
)
def test_commands_of_the_docstring_work(
    program: str, reader: Any, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """The last command at the top of a program runs it, through torchrun, and prints what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    first, last = reader.commands(EXAMPLES / program)
    if pytestconfig.getoption("--full"):
        alone = reader.run(EXAMPLES / program, first, MODULES)
        assert alone.status == 0, alone.text
        assert "Epoch 1 " in alone.text
    run = reader.run(EXAMPLES / program, last, MODULES)

    assert run.status == 0, run.text
    least = ACCURACY if program == "train_distributed.py" else VISION_ACCURACY
    assert float(re.findall(r"Test Accuracy: ([\d.]+)%", run.text)[-1]) >= 100 * least
    assert len({line.params for line in parse_rank_lines(run.lines) if isinstance(line, RankEnd)}) == 1
    reader.compare(EXAMPLES / program, run, lambda line: "rank " in line or "Epoch" in line, MASKS)


@pytest.mark.parametrize("handled", [True, False])
def test_signal_of_slurm_reaches_the_ranks(handled: bool, tmp_path: Path) -> None:
    """The launcher passes SIGUSR1 on where its list has it, and the training stops; otherwise it dies of it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--signals-to-handle=SIGTERM,SIGUSR1"] if handled else []
    arguments = [
        "--epochs=10000",
        "--save-every=1000000",
        f"--checkpoint-dir={tmp_path}",
    ]  # only a signal makes it save
    program = [EXAMPLES / "train_requeue.py", *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    with subprocess.Popen([*launcher, *program], env=own, stdout=subprocess.PIPE, text=True) as torchrun:
        assert torchrun.stdout
        printed = []
        try:
            for line in torchrun.stdout:
                printed.append(line)
                if line.startswith("Epoch 1 "):
                    os.kill(torchrun.pid, signal.SIGUSR1)
                    if not handled:
                        torchrun.wait()
                        break
            status = torchrun.wait()
        finally:
            torchrun.kill()
            for line in parse_rank_lines(printed):  # the rank that a dead torchrun has left alone
                if isinstance(line, RankStart) and line.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(line.pid, signal.SIGKILL)

    assert status == (1 if handled else -signal.SIGUSR1)
    assert ("SIGUSR1" in printed[-1]) is handled
    assert bool([*tmp_path.glob("step_*.pt")]) is handled


def test_store_of_the_rendezvous_is_open() -> None:
    """A store at 127.0.0.1 answers at another address as well, to a client that nobody let in."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stranger = dist.TCPStore("127.0.0.2", store.port, is_master=False)
    stranger.set("key", "from a stranger")

    assert store.get("key") == b"from a stranger"
