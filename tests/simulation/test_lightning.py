"""The program of the Lightning guide on one process and on several, and with everything that can be wrong."""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import runpy
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.accidents import flip_a_bit

from recordings import read_recording, recording_path
from srunbook import simulate
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "examples" / "lightning" / "full" / "train.py"

pytestmark = pytest.mark.usefixtures("quick_start")

# What each command of the docstring prints ----------------------------------------------------------------------------


@pytest.fixture
def commands(reader: Any) -> list[str]:
    """Read the two commands at the top of the program: one process, and two nodes with two processes each."""
    found: list[str] = reader.commands(TRAIN)
    assert len(found) == 2
    return found


def iterations(run: Any) -> set[str]:
    """How many iterations the lines of the epochs count."""
    return {line.split(": ")[1].split(",")[0] for line in run.output if "Epoch " in line}


def test_one_process(reader: Any, commands: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One process makes 219 iterations of 32 samples in an epoch, and leaves what the page names, for benchmark.py."""
    run = reader.run(TRAIN, commands[0])
    assert run.exit_code == 0, run.text
    folder = reader.folder / "outputs" / "1x1"
    with (folder / "local" / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["val_accuracy"]]

    assert iterations(run) == {"219 iterations"}
    assert float(rows[-1]["val_accuracy"]) > 0.85
    assert len(json.loads((folder / "local" / "epoch_seconds.json").read_text())) == 2
    assert (folder / "local" / "checkpoints" / "last.ckpt").is_file()
    assert list((folder / "local" / "tensorboard").glob("events.out.tfevents.*"))
    assert json.loads((folder / "configuration.json").read_text())["devices"] == 1
    monkeypatch.chdir(reader.folder)
    said, status = reader.alone([sys.executable, TRAIN.with_name("benchmark.py"), "--output_dir=outputs"])
    assert status == 0, said
    assert re.search(r"^ *1x1 +1 x 1 +1 +1 ", said, re.MULTILINE), said
    assert "batch_size 32, learning_rate 0.01, scale_learning_rate False" in said


def test_two_nodes() -> None:
    """When it was recorded, four processes on two nodes made 55 iterations as one world, with the same parameters."""
    run = read_recording(recording_path(TRAIN))
    told = parse_rank_lines(run.output)
    starts = [line for line in told if isinstance(line, RankStart)]
    ends = [line for line in told if isinstance(line, RankEnd)]

    assert iterations(run) == {"55 iterations"}
    assert run.text.count("Training on 2 x 2 CPU processes") == 1  # by one rank of all, not by one of each node
    assert sorted((one.rank, one.world_size, one.local_rank) for one in starts) == [
        (0, 4, 0),
        (1, 4, 1),
        (2, 4, 0),
        (3, 4, 1),
    ]
    assert {(one.backend, one.device, one.epochs) for one in starts} == {("gloo", "cpu", 2)}
    assert {one.framework for one in starts} == {f"lightning-{version('lightning')}"}
    assert len({one.pid for one in starts}) == 4
    assert len({one.host for one in starts}) == 2
    assert len({one.job for one in starts} - {None}) == 1
    assert {one.steps for one in ends} == {110}
    assert len({one.params for one in ends}) == 1
    assert len(ends) == 4


# What it says when it cannot train ------------------------------------------------------------------------------------

JOB = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NAME": "train",
    "SLURM_NTASKS": "4",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "0",
    "SLURMD_NODENAME": "node1",
}
STEP = {**JOB, "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}


@functools.cache
def program() -> SimpleNamespace:
    """Return the functions of the program."""
    return SimpleNamespace(**runpy.run_path(str(TRAIN)))


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimpleNamespace]:
    """Return the functions of the program, which then find these variables of Slurm, and GPUs."""

    def find(environ: dict[str, str], gpus: int = 0) -> SimpleNamespace:
        for name in [name for name in os.environ if name.startswith("SLURM")]:
            monkeypatch.delenv(name)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        return program()

    return find


@pytest.mark.parametrize(
    ("environ", "gpus", "answer"),
    [
        ({}, 2, (1, 1)),
        (STEP, 0, (2, 2)),
        ({**STEP, "SLURM_NNODES": "1", "SLURM_NTASKS_PER_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "4"}, 4, (1, 4)),
    ],
)
def test_allocation_becomes_nodes_and_devices(
    within: Any, environ: dict[str, str], gpus: int, answer: tuple[int, int]
) -> None:
    """Nodes and devices are those of the allocation, and one process where there is none."""
    assert within(environ, gpus).read_allocation() == answer


@pytest.mark.parametrize(
    ("environ", "gpus", "answer"),
    [
        (JOB, 0, "not started by srun; start all: srun python "),
        (
            {name: value for name, value in STEP.items() if name != "SLURM_NTASKS_PER_NODE"},
            0,
            "each node runs 2 of 4 tasks, and --ntasks-per-node is not given, .* give --ntasks-per-node=2 or as many",
        ),
        (STEP, 4, "each node runs 2 tasks, and each task sees 4 GPUs; give each GPU its task: --ntasks-per-node=4"),
        ({**STEP, "SLURM_GPUS_ON_NODE": "2"}, 1, "each task sees 1 GPUs; let each task see all .* not --gpus-per-task"),
    ],
)
def test_allocation_that_does_not_agree_is_refused(
    within: Any, environ: dict[str, str], gpus: int, answer: str
) -> None:
    """A layout in which Lightning would hang, or train alone, is named, with the option that mends it."""
    with pytest.raises(ValueError, match=answer):
        within(environ, gpus).read_allocation()


def test_folder_of_another_configuration_is_refused(within: Any, tmp_path: Path) -> None:
    """A folder takes further runs of its configuration, and names what differs in another."""
    folder = tmp_path / "outputs"

    for job in ("17", "18"):
        claimed = within({"SLURM_JOB_ID": job}).claim_folder(folder, {"nodes": 1, "epochs": 2})
        assert claimed == folder / job
    with pytest.raises(ValueError, match="holds runs with nodes 1; give another: --output_dir="):
        within({"SLURM_JOB_ID": "19"}).claim_folder(folder, {"nodes": 2, "epochs": 2})


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--learning_rate", "nan"], {}, "--learning_rate: nan: give a number from 1e-09"),
        ([], JOB, "error: this is one process of a job, not started by srun; start all: srun python "),
    ],
)
def test_bad_input_ends_with_status_2(
    arguments: list[str],
    environ: dict[str, str],
    message: str,
    reader: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is wrong with the command line or the job is said in one line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    output, status = reader.alone([sys.executable, TRAIN, *arguments], **environ)

    assert status == 2
    assert message in output
    assert "Traceback" not in output
    assert not (tmp_path / "outputs").exists()


def test_flipped_bit_is_not_trained_on(tmp_path: Path) -> None:
    """A checkpoint in which a bit has changed ends the program with one line."""
    files, path = program().WholeFiles(), tmp_path / "last.ckpt"
    files.save_checkpoint({"weights": torch.zeros(1000)}, path)
    assert files.load_checkpoint(path).keys() == {"weights"}
    flip_a_bit(path)

    with pytest.raises(SystemExit, match=r"error: .*last\.ckpt is damaged: delete it to start over"):
        files.load_checkpoint(path)


def test_job_of_any_name_is_one_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a job named bash, which Lightning by itself takes for a shell, two tasks are two ranks."""
    monkeypatch.chdir(tmp_path)
    env = {"OMP_NUM_THREADS": "1", "SLURM_JOB_NAME": "bash"}
    run = simulate.run([sys.executable, TRAIN, "--epochs=1", "--batch_size=512"], ntasks_per_node=2, env=env)

    assert run.returncode == 0, run.failure
    assert {(line.rank, line.world_size) for line in parse_rank_lines(run.output.splitlines())} == {(0, 2), (1, 2)}


def test_learning_rate_follows_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Any) -> None:
    """With twice the batch the linear rule doubles the rate, and the warm-up reaches it step by step.

    Where Slurm gave GPUs and torch sees none, one line says so before the first epoch.
    """
    code = (
        f"import sys; sys.path.insert(0, {str(TRAIN.parent)!r}); import train\n"
        "class Spy(train.Report):\n"
        "    def on_train_batch_start(self, trainer, module, batch, index):\n"
        "        if index < 4:\n"
        "            print(f\"rate {trainer.optimizers[0].param_groups[0]['lr']:.6f}\")\n"
        "train.Report = Spy\n"
        "train.run(train.read_settings(), train.CloudData)\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ["--batch_size=64", "--scale_learning_rate", "--warmup_steps=4", "--epochs=1"]
    output, status = reader.alone([sys.executable, "-c", code, *options], SLURM_GPUS_ON_NODE="1")

    assert status == 0, output
    assert output.count("warning: Slurm gave this job GPUs and PyTorch sees none: training on CPUs") == 1
    assert output.index("warning: ") < output.index("Epoch 1/1")
    assert re.findall(r"^rate (\S+)$", output, re.MULTILINE) == ["0.005000", "0.010000", "0.015000", "0.020000"]
