"""The programs of the torchrun guide in every layout, against one process, and with everything that can be wrong."""

from __future__ import annotations

import fcntl
import gzip
import re
import shutil
import signal
import struct
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import forked
from support.accidents import disk_full, flip_a_bit, killed_before_rename, signal_at_import

from recordings import read_recording, recording_path
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torchrun" / "full"

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


@pytest.fixture(scope="module")
def ranks(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Start the ranks."""
    with forked.forking(EXAMPLES) as process:
        yield Ranks(process, tmp_path_factory.mktemp("ranks"))


# The same training on all layouts ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_process(ranks: Ranks) -> Outcome:
    """Train the oracle: one process that sees the whole batch."""
    outcome = ranks("train_distributed.py", "--epochs=3")
    assert outcome.statuses == [0], outcome.text
    return outcome


def test_training_equals_one_process(one_process: Outcome, ranks: Ranks) -> None:
    """Two nodes with two processes each have the losses of one process, to rounding and its growth."""
    outcome = ranks("train_distributed.py", "--epochs=3", nodes=2, processes=2)
    assert outcome.fingerprint
    found, expected = outcome.metrics, one_process.metrics

    assert len(found) == 3
    for name in ("train_loss", "test_loss"):
        assert found[0][name] == pytest.approx(expected[0][name], rel=AFTER_ONE_EPOCH)
        assert found[-1][name] == pytest.approx(expected[-1][name], rel=AT_THE_END)
    where = "nodes x processes: 2 x 2, backend: gloo), master node: node0"
    assert outcome.ranks[0]["stdout"].count(f"on 4 CPU processes ({where}") == 1
    starts = [line for line in parse_rank_lines(outcome.text.splitlines()) if isinstance(line, RankStart)]
    assert [(start.rank, start.host, start.local_rank) for start in starts] == [
        (rank, f"node{rank // 2}", rank % 2) for rank in range(4)
    ]
    kinds = {(start.device, start.backend, start.job, start.framework) for start in starts}
    assert kinds == {("cpu", "gloo", None, f"torch-{version('torch')}")}
    checkpoints = {f"checkpoint_epoch_{epoch}.pt" for epoch in (1, 2, 3)}
    assert {path.name for path in outcome.folder.iterdir()} == {".lock", "metrics.csv", "curves.png"} | checkpoints


def test_each_epoch_has_its_own_order(ranks: Ranks) -> None:
    """A model that hardly learns has another loss in the next epoch, because its only step sees other images."""
    first, second = ranks("train_distributed.py", "--epochs=2", "--batch-size=999", "--learning-rate=1e-30").metrics

    assert first["train_loss"] != second["train_loss"]
    assert first["test_loss"] == second["test_loss"]


def test_vision_in_mixed_precision(ranks: Ranks) -> None:
    """Mixed precision begins with nearly the loss of float32, and with float16 the scaler is in the checkpoint."""
    options = ("train_vision.py", "--batch-size=256")
    exact = ranks(*options, "--epochs=1", processes=2)
    mixed = ranks(*options, "--epochs=1", "--precision=float16", processes=2)
    resumed = ranks(*options, "--epochs=2", "--precision=float16", "--resume", processes=2, folder=mixed.folder)

    assert mixed.metrics[0]["train_loss"] == pytest.approx(exact.metrics[0]["train_loss"], rel=0.02)
    assert mixed.metrics[0]["train_loss"] != exact.metrics[0]["train_loss"]
    assert resumed.statuses == [0, 0], resumed.text


# Resume --------------------------------------------------------------------------------------------------------------


WITHOUT_WARM_UP = """
import runpy, train_distributed as t
t.warm_up = lambda *_: None
runpy.run_path = lambda *_, **__: t.main()
"""


@pytest.mark.parametrize("before", ["", WITHOUT_WARM_UP], ids=["", "without warming up"])
def test_resume_is_bit_identical(before: str, ranks: Ranks, tmp_path: Path) -> None:
    """A resume ends with the parameters of a training without a break, bit for bit, if it has warmed up."""
    options = ("--epochs=2", "--batch-size=36")
    in_one_go = ranks("train_distributed.py", *options, processes=3, before=before)
    folder = shutil.copytree(in_one_go.folder, tmp_path / "interrupted")
    (folder / "checkpoint_epoch_2.pt").unlink()
    resumed = ranks("train_distributed.py", *options, "--resume", processes=3, folder=folder, before=before)

    assert (resumed.fingerprint == in_one_go.fingerprint) == (not before)
    assert "Resuming after epoch 1" in resumed.text
    assert [row["epoch"] for row in resumed.metrics] == [1, 2]
    assert resumed.metrics[-1]["train_loss"] == pytest.approx(in_one_go.metrics[-1]["train_loss"], rel=AT_THE_END)


EACH_BATCH = """
import os, runpy, signal
import train_requeue as r
batches, images = r.batches, []
def spied(*arguments):
    for batch in batches(*arguments):
        images.append(batch[0])
        {code}
        yield batch
r.batches = spied
runpy.run_path = lambda *_, **__: r.main()
"""
"""Runs train_requeue.py, and some code before each of its steps."""


def test_requeue_stops_at_a_signal_and_goes_on_within_the_epoch(ranks: Ranks) -> None:
    """A signal to one rank ends all with status 75 after the same step; the next run ends as one without a signal."""
    options = ("train_requeue.py", "--epochs=2", "--batch-size=72")
    in_one_go = ranks(*options, processes=3)
    signalled = "len(images) == 17 and os.environ['RANK'] == '2' and os.kill(os.getpid(), signal.SIGUSR1)"
    stopped = ranks(*options, processes=3, before=EACH_BATCH.format(code=signalled))
    copy = Path(shutil.copy(stopped.folder / "step_00000017.pt", stopped.folder / "step_00000001-good.pt"))
    resumed = ranks(*options, processes=3, folder=stopped.folder)

    assert copy.exists()
    assert stopped.statuses == [75] * 3, stopped.text
    assert "Stopping after step 17: SIGUSR1" in stopped.ranks[0]["stdout"]
    assert "Resuming after step 17" in resumed.ranks[0]["stdout"]
    assert resumed.fingerprint == in_one_go.fingerprint
    epochs = [re.findall(r"Epoch .*", outcome.ranks[0]["stdout"]) for outcome in (in_one_go, resumed)]
    assert epochs[0] == epochs[1]  # also that of the interrupted epoch


def test_requeue_goes_on_with_other_ranks(ranks: Ranks, tmp_path: Path) -> None:
    """Two signals during the imports stop it after one step; four ranks, with other shares, train on what is left."""
    options = ("train_requeue.py", "--epochs=1", "--batch-size=70")
    path = str(tmp_path / "images")
    write = f"open({path!r}, 'a').writelines(image.numpy().tobytes().hex() + '\\n' for image in batch[0])"
    code = EACH_BATCH.format(code=write)
    stopped = ranks(*options, processes=2, before=signal_at_import("torch", signal.SIGTERM) + code)
    resumed = ranks(*options, processes=4, before=code, folder=stopped.folder)
    trained = (tmp_path / "images").read_text().split()

    assert stopped.statuses == [75, 75], stopped.text
    assert "Stopping after step 1: SIGUSR1" in stopped.text
    assert resumed.fingerprint
    assert len(trained) == len(set(trained)) == 70 + 20 * 68  # of 1438: the last 8 make no batch


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


def test_share_that_does_not_divide(ranks: Ranks) -> None:
    """Three processes say that they share 64 images, and that torch sees no GPUs; each test image counts once."""
    outcome = ranks("train_distributed.py", "--epochs=1", processes=3, SLURM_GPUS_ON_NODE="3")
    right = outcome.metrics[0]["test_accuracy"] * 359

    assert right == pytest.approx(round(right), abs=1e-9)
    for line in (
        "--batch-size 64: each of 3 processes takes 21 images, 63 a step",
        "warning: Slurm gave this job GPUs and PyTorch sees none",
    ):
        assert outcome.text.count(line) == outcome.ranks[0]["stdout"].partition("Epoch 1")[0].count(line) == 1


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "environ", "message"),
    [
        ("--device=cuda", {}, "sees no GPU on node0; install a CUDA build of PyTorch and ask Slurm for GPUs"),
        ("--epochs=1", {"SLURM_NNODES": "2"}, "2 processes run on 1 nodes, but Slurm allotted 2; start one torchrun"),
        ("--epochs=1", {"SLURM_GPUS_ON_NODE": "4"}, "2 processes run on node0, but Slurm allotted 4; give its one"),
    ],
)
def test_resources_that_were_not_allotted(option: str, environ: dict[str, str], message: str, ranks: Ranks) -> None:
    """If the processes are not what Slurm allotted, all end with status 2, and one says why."""
    outcome = ranks("train_distributed.py", option, processes=2, **environ)

    assert message in outcome.refusal
    assert not outcome.folder.exists()


def test_wrong_option_is_said_by_each_rank(ranks: Ranks) -> None:
    """Whichever rank ends first, and lets torchrun end the others, has said in one line what is wrong."""
    outcome = ranks("train_distributed.py", "--learning-rate=nan", processes=2)
    line = "train_distributed.py: error: argument --learning-rate: nan: give more than 0\n"

    assert [(rank["status"], rank["stdout"], rank["stderr"]) for rank in outcome.ranks] == [(2, "", line)] * 2


def test_checkpoint_directory_that_cannot_be(tmp_path: Path, ranks: Ranks) -> None:
    """A checkpoint directory below a file is refused before the training begins."""
    (tmp_path / "file").write_text("")
    outcome = ranks("train_distributed.py", processes=2, folder=tmp_path / "file" / "checkpoints")

    assert outcome.refusal == f"error: cannot write in --checkpoint-dir {outcome.folder}: Not a directory"
    assert "Epoch" not in outcome.text


def test_disk_that_fills(ranks: Ranks) -> None:
    """A disk that is full at the second epoch ends all ranks; the first checkpoint and the metrics are whole."""
    outcome = ranks("train_distributed.py", "--epochs=3", processes=2, before=disk_full(4))
    resumed = ranks("train_distributed.py", "--epochs=3", "--resume", processes=2, folder=outcome.folder)

    assert "No space left on device; earlier files are whole" in outcome.refusal
    assert resumed.statuses == [0, 0], resumed.text
    assert [row["epoch"] for row in resumed.metrics] == [1, 2, 3]
    assert not list(outcome.folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], r"holds checkpoint_epoch_\d+\.pt: give --resume or another --checkpoint-dir"),
        (["--resume"], "another job is training in .*: wait, or give another --checkpoint-dir"),
    ],
)
def test_folder_of_another_training(options: list[str], message: str, one_process: Outcome, ranks: Ranks) -> None:
    """A folder with checkpoints, or in which another process trains, is rejected, and nothing in it changes."""
    before = {path.name: path.stat().st_mtime_ns for path in one_process.folder.iterdir()}
    with (one_process.folder / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if options else fcntl.LOCK_UN)
        outcome = ranks("train_distributed.py", *options, processes=2, folder=one_process.folder)

    assert re.search(message, outcome.refusal)
    assert {path.name: path.stat().st_mtime_ns for path in one_process.folder.iterdir()} == before


def test_damaged_checkpoint_is_passed_over(one_process: Outcome, ranks: Ranks, tmp_path: Path) -> None:
    """Where a bit of the newest checkpoint has flipped, the training continues from the one before, to the same end.

    10 is newer than 2, and a copy with a longer name is not a checkpoint.
    """
    folder, epochs = tmp_path / "interrupted", len(one_process.metrics)
    shutil.copytree(one_process.folder, folder)
    newest = (folder / f"checkpoint_epoch_{epochs}.pt").rename(folder / "checkpoint_epoch_10.pt")
    shutil.copy(folder / "checkpoint_epoch_1.pt", folder / "checkpoint_epoch_1-good.pt")
    flip_a_bit(newest)
    resumed = ranks("train_distributed.py", f"--epochs={epochs}", "--resume", folder=folder)

    assert resumed.text.count(f"warning: {newest} is damaged") == 1
    assert f"Resuming after epoch {epochs - 1}\n" in resumed.text
    assert resumed.fingerprint == one_process.fingerprint


def test_killed_while_it_saves(ranks: Ranks) -> None:
    """A rank that is killed between checkpoint and table costs no row of the table."""
    code = killed_before_rename(".pt", ".csv", number=2)
    killed = ranks("train_distributed.py", "--epochs=1", processes=2, before=code)
    resumed = ranks("train_distributed.py", "--epochs=1", "--resume", processes=2, folder=killed.folder)

    assert killed.statuses[0] == 9, killed.text
    assert resumed.statuses == [0, 0], resumed.text
    assert [row["epoch"] for row in resumed.metrics] == [1]
    assert not list(resumed.folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"half of it", "holds no checkpoint that is whole"),
        ({"model": {"weight": torch.zeros(1)}, "optimizer": {}}, "is of another model: Error"),
        ({"step": 1}, "is of another model: 'model'"),
    ],
)
def test_checkpoint_that_cannot_be_resumed(state: Any, message: str, ranks: Ranks, tmp_path: Path) -> None:
    """A damaged checkpoint, and one of another model or program, are rejected by name and kept."""
    path = tmp_path / "step_00000001.pt"
    path.write_bytes(state) if isinstance(state, bytes) else torch.save(state, path)
    content = path.read_bytes()
    outcome = ranks("train_requeue.py", processes=2, folder=tmp_path)

    assert message in outcome.refusal
    assert path.read_bytes() == content


# Through torchrun ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["train_distributed.py", "train_requeue.py", "train_vision.py"])
def test_recording_has_a_good_model(program: str) -> None:
    """When it was recorded, a program ended with a good accuracy and the same parameters on all ranks."""
    recorded = read_recording(recording_path(EXAMPLES / program))
    least = ACCURACY if program == "train_distributed.py" else VISION_ACCURACY

    assert float(re.findall(r"Test Accuracy: ([\d.]+)%", recorded.text)[-1]) >= 100 * least
    assert len({line.params for line in parse_rank_lines(recorded.output) if isinstance(line, RankEnd)}) == 1
