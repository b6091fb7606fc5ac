"""The programs of the torchrun guide in every layout, against one process, and with everything that can be wrong."""

from __future__ import annotations

import contextlib
import fcntl
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
from support.accidents import disk_full, flip_a_bit, killed_before_rename, signal_at_import

from recordings.comparing import Mask
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "torchrun" / "full"
MODULES = [EXAMPLES / name for name in ("processes.py", "image_data.py", "train_distributed.py")]

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
    assert len({start.pid for start in starts} - {None}) == 4
    checkpoints = {f"checkpoint_epoch_{epoch}.pt" for epoch in (1, 2, 3)}
    assert {path.name for path in outcome.folder.iterdir()} == {".lock", "metrics.csv", "curves.png"} | checkpoints


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


def test_vision_in_mixed_precision(vision: Outcome, ranks: Ranks) -> None:
    """Mixed precision begins with nearly the loss of float32, and with float16 the scaler is in the checkpoint."""
    options = ("--batch-size=256", "--precision=float16")
    mixed = ranks("train_vision.py", "--epochs=1", *options, processes=2)
    resumed = ranks("train_vision.py", "--epochs=2", *options, "--resume", processes=2, folder=mixed.folder)

    assert mixed.metrics[0]["train_loss"] == pytest.approx(vision.metrics[0]["train_loss"], rel=0.02)
    assert mixed.metrics[0]["train_loss"] != vision.metrics[0]["train_loss"]
    assert resumed.statuses == [0, 0], resumed.text


# Resume --------------------------------------------------------------------------------------------------------------


def test_resume_is_bit_identical(ranks: Ranks, tmp_path: Path) -> None:
    """A resume after the first of two epochs ends with the parameters of a training without a break, bit for bit."""
    options = ("--epochs=2", "--batch-size=72")
    in_one_go = ranks("train_distributed.py", *options, processes=3)
    folder = interrupted(in_one_go, tmp_path / "interrupted")
    resumed = ranks("train_distributed.py", *options, "--resume", processes=3, folder=folder)

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
        "    t.main()\n"
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


EACH_STEP = """
import os, runpy, signal
import train_requeue as r
step, made = r.train_step, []
def train_step(model, optimizer, images, labels):
    {first}
    made.append(step(model, optimizer, images, labels))
    {then}
    return made[-1]
r.train_step = train_step
runpy.run_path = lambda *_, **__: r.main()
"""
"""Runs train_requeue.py, and something before and after each of its steps."""


def test_requeue_stops_at_a_signal_and_goes_on_within_the_epoch(ranks: Ranks) -> None:
    """A signal to one rank ends all with status 75 after the same step; the next run ends as one without a signal."""
    options = ("train_requeue.py", "--epochs=2", "--batch-size=72")
    in_one_go = ranks(*options, processes=3)
    signalled = "len(made) == 17 and os.environ['RANK'] == '2' and os.kill(os.getpid(), signal.SIGUSR1)"
    stopped = ranks(*options, processes=3, before=EACH_STEP.format(first="pass", then=signalled))
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
    write = f"""with open({str(tmp_path / "images")!r}, "a") as file:
        file.writelines(image.numpy().tobytes().hex() + "\\n" for image in images)"""
    code = EACH_STEP.format(first=write, then="pass")
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


def test_damaged_mnist_file_is_named(mnist: Path, ranks: Ranks) -> None:
    """A file that was not downloaded to its end is named."""
    path = mnist / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    outcome = ranks("train_distributed.py", "--dataset=mnist", f"--data-dir={mnist}", processes=2)

    assert outcome.refusal == f"error: {path} is damaged, or no IDX file: download it again"


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

BAD: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "missing data": (["--dataset=mnist", "--data-dir=nowhere"], {}, "nowhere has no train-images-idx3-ubyte and no"),
    "batch of more than all": (["--batch-size=5000"], {}, "--batch-size 5000 is more than the 1438 images to train on"),
    "workers": (["--num-workers=-1"], {}, "--num-workers -1: give 0 or more"),
    "device": (["--device=cuda"], {}, "sees no GPU on node0; install a CUDA build of PyTorch and ask Slurm for GPUs"),
    "no torchrun": (
        [],
        {"processes": 1, "before": "import os; del os.environ['RANK']"},
        "error: RANK is not set. Start this program with torchrun: torchrun --standalone",
    ),
    "fewer nodes": (
        [],
        {"SLURM_NNODES": "2"},
        "2 processes run on 1 nodes, but Slurm allotted 2; start one torchrun on each of them",
    ),
    "fewer processes": (
        [],
        {"SLURM_GPUS_ON_NODE": "4"},
        "2 processes run on node0, but Slurm allotted 4; give its one torchrun",
    ),
    "two launchers": (
        [],
        {"processes": 4, "LOCAL_WORLD_SIZE": "2"},
        "4 processes run on node0, but Slurm allotted 2",
    ),
}
"""Options, how to start, and what is said."""


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_by_one_rank(case: str, ranks: Ranks) -> None:
    """Bad input ends all ranks with status 2, one of them says what is wrong, and nothing is written."""
    options, how, message = BAD[case]
    outcome = ranks("train_distributed.py", *options, **{"processes": 2, **how})

    assert message in outcome.refusal
    assert not outcome.folder.exists() or not list(outcome.folder.iterdir())


def test_wrong_option_is_said_by_each_rank(ranks: Ranks) -> None:
    """Whichever rank ends first, and lets torchrun end the others, has said in one line what is wrong."""
    outcome = ranks("train_distributed.py", "--learning-rate=nan", processes=2)
    line = "train_distributed.py: error: argument --learning-rate: nan: give more than 0\n"

    assert [(rank["status"], rank["stdout"], rank["stderr"]) for rank in outcome.ranks] == [(2, "", line)] * 2


def test_what_is_said_before_the_first_step(ranks: Ranks) -> None:
    """Three processes take an equal share of a batch of 64; one line says so, and one that torch sees no GPUs."""
    outcome = ranks("train_distributed.py", "--epochs=1", processes=3, SLURM_GPUS_ON_NODE="3")
    before = outcome.ranks[0]["stdout"].partition("Epoch 1")[0]

    assert outcome.statuses == [0, 0, 0], outcome.text
    for line in (
        "--batch-size 64: each of 3 processes takes 21 images, 63 a step",
        "warning: Slurm gave this job GPUs and PyTorch sees none",
    ):
        assert outcome.text.count(line) == before.count(line) == 1


def test_more_processes_than_images(tmp_path: Path, ranks: Ranks) -> None:
    """Three processes for two images are refused."""
    from matplotlib.image import imsave

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        imsave(tmp_path / name / "1.png", np.zeros((4, 4, 3), np.uint8))
    imsave(tmp_path / "a" / "2.png", np.zeros((4, 4, 3), np.uint8))
    outcome = ranks("train_distributed.py", "--dataset=folder", f"--data-dir={tmp_path}", processes=3)

    assert outcome.refusal == "error: 3 processes for 2 images to train on: start fewer"


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


def test_earlier_checkpoints_are_not_overwritten(one_process: Outcome, ranks: Ranks) -> None:
    """A training without --resume leaves the checkpoints of another alone."""
    before = sorted((path.name, path.stat().st_mtime_ns) for path in one_process.folder.iterdir())
    outcome = ranks("train_distributed.py", processes=2, folder=one_process.folder)

    assert re.search(r"holds checkpoint_epoch_\d+\.pt: give --resume or another --checkpoint-dir", outcome.refusal)
    assert sorted((path.name, path.stat().st_mtime_ns) for path in one_process.folder.iterdir()) == before


def test_two_jobs_in_one_folder(one_process: Outcome, ranks: Ranks) -> None:
    """A folder in which another process trains is refused, and nothing in it changes."""
    before = {path.name: path.stat().st_mtime_ns for path in one_process.folder.iterdir()}
    with (one_process.folder / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = ranks("train_distributed.py", "--resume", processes=2, folder=one_process.folder)

    assert outcome.refusal.startswith(f"error: another job is training in {outcome.folder}: wait, or give another")
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


ANOTHER_MODEL = {"model": {"weight": torch.zeros(1)}, "optimizer": {}}
PROGRESS = dict.fromkeys(("sums", "step", "epoch", "images"), 0) | {"batch_size": 64}


@pytest.mark.parametrize(
    ("program", "name", "state", "said"),
    [
        ("train_distributed.py", "checkpoint_epoch_1.pt", b"half of it", "holds no checkpoint that is whole"),
        ("train_distributed.py", "checkpoint_epoch_1.pt", ANOTHER_MODEL | {"history": []}, "is of another model"),
        ("train_requeue.py", "step_00000001.pt", {}, "holds no checkpoint that is whole"),
        ("train_requeue.py", "step_00000001.pt", ANOTHER_MODEL | PROGRESS, "is of another model"),
    ],
    ids=["cut", "of another model", "empty", "of another model to requeue"],
)
def test_checkpoint_that_cannot_be_resumed(
    program: str, name: str, state: Any, said: str, ranks: Ranks, tmp_path: Path
) -> None:
    """A damaged checkpoint, one of another program and one of another model are refused by name and kept."""
    path = tmp_path / name
    path.write_bytes(state) if isinstance(state, bytes) else torch.save(state, path)
    content = path.read_bytes()
    outcome = ranks(program, *["--resume"][: program == "train_distributed.py"], processes=2, folder=tmp_path)

    assert said in outcome.refusal
    assert path.read_bytes() == content


# Through torchrun ----------------------------------------------------------------------------------------------------

MASKS = (
    Mask(r"^\[\d\] ", "[<node>] ", "any of the nodes may get rank 0"),
    Mask(r"master node: .*", "master node: <node>", "any of the nodes may get rank 0"),
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
def test_commands_of_the_docstring_work(program: str, reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last command at the top of a program runs it, through torchrun, and prints what was recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = reader.run(EXAMPLES / program, reader.commands(EXAMPLES / program)[-1], MODULES)

    assert run.exit_code == 0, run.text
    least = ACCURACY if program == "train_distributed.py" else VISION_ACCURACY
    assert float(re.findall(r"Test Accuracy: ([\d.]+)%", run.text)[-1]) >= 100 * least
    assert len({line.params for line in parse_rank_lines(run.output) if isinstance(line, RankEnd)}) == 1
    reader.compare(EXAMPLES / program, run, lambda line: "rank " in line or "Epoch" in line, MASKS)


@pytest.mark.parametrize("handled", [True, False])
def test_signal_of_slurm_reaches_the_ranks(handled: bool, tmp_path: Path) -> None:
    """The launcher passes SIGUSR1 on where its list has it, and the training stops; otherwise it dies of it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--signals-to-handle=SIGTERM,SIGUSR1"] if handled else []
    arguments = ["--epochs=10000", "--save-every=1000000", f"--checkpoint-dir={tmp_path}"]  # a signal makes it save
    program = [EXAMPLES / "train_requeue.py", *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    with subprocess.Popen([*launcher, *program], env=own, stdout=subprocess.PIPE, text=True) as torchrun:
        assert torchrun.stdout
        printed = []
        try:
            for line in torchrun.stdout:
                printed.append(line)
                if line.startswith("Epoch 1 "):
                    with (tmp_path / ".lock").open() as lock, pytest.raises(BlockingIOError):  # kept from the start
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
