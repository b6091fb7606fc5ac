"""The Lightning guide on a real Slurm: requeue by a signal, refused layouts, launchers and sizes compared.

`pytest tests/cluster/test_lightning.py --record` renews the recording of benchmark.py.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from recording_files import Recording, read_recording, recording_path, write_recording
from support.proof import Proof
from support.published import stage

from srunbook import cluster
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankEnd, RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "slurm" / "lightning"
BENCHMARK = ROOT / "examples" / "lightning" / "full" / "benchmark.py"
EPOCHS = 20


def start(
    slurm: State, as_user: Callable[..., str], script: str, option: str = "", argument: str = "", **edited: str
) -> tuple[str, Path]:
    """Submit a published script with options of sbatch or of the program; return number and folder on the host.

    Args:
        slurm: The cluster.
        as_user: Runs a command on it.
        script: Name of the script.
        option: Options of sbatch.
        argument: What follows the script.
        edited: Programs that differ from the published ones, by their stem.
    """
    inside = stage(slurm, SCRIPTS / script)
    folder = slurm.folder / inside.removeprefix("/")
    for name, text in edited.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    printed = as_user("bash", "-c", f"cd {inside} && sbatch --parsable {option} {script} {argument}")
    return printed.strip(), folder


def fingerprint(job: FinishedJob) -> str:
    """Return the one fingerprint that all ranks print at the end, after all iterations."""
    assert job.state == "COMPLETED", job.output
    ends = [record for record in parse_rank_lines(job.output.splitlines()) if isinstance(record, RankEnd)]
    ((steps, found),) = {(record.steps, record.params) for record in ends}
    assert (len(ends), steps) == (2, EPOCHS * 110)
    assert found
    return found


ONE_EACH = "--gpus-per-node=1 --ntasks-per-node=1 --cpus-per-task=1"

WAITS = """\
        while self.current_epoch == 2 and "SLURM_RESTART_COUNT" not in os.environ and not signals:
            signal.sigtimedwait([], 0.1)
        return loss
"""
"""The end of a step: in its third epoch the first start waits for the signal, however long that takes."""


def signalled(as_user: Callable[..., str], until: Any, identity: str, folder: Path, line: str) -> None:
    """Send SIGUSR1 to a job once it has said something."""
    log = folder / f"requeue-{identity}.out"
    until(lambda: log.exists() and line in log.read_text(encoding="utf-8"))
    as_user("scancel", "--signal=USR1", identity)


def starts(as_user: Callable[..., str], identity: str) -> list[str]:
    """Return how each start of a job ended, from accounting."""
    asked = ["sacct", "--duplicates", "--allocations", "--noheader", f"--jobs={identity}", "--format=State"]
    return as_user(*asked).split()


def test_signal_requeues_once(slurm: State, as_user: Callable[..., str], until: Any) -> None:
    """A job that gets SIGUSR1 ends its epoch, is requeued once, resumes with the next, and completes."""
    published = (ROOT / "examples" / "lightning" / "requeue.py").read_text(encoding="utf-8")
    assert published.count("        return loss\n") == 1
    waiting = published.replace("        return loss\n", WAITS)
    identity, folder = start(slurm, as_user, "requeue.sbatch", ONE_EACH, requeue=waiting)
    signalled(as_user, until, identity, folder, "epoch 1: loss")
    job = cluster.await_job(slurm, identity)

    assert starts(as_user, identity) == ["REQUEUED", "COMPLETED"], job.output
    assert re.findall(r"(stopped|resumed) before epoch (\d)$", job.output, re.MULTILINE) == [
        ("stopped", "3"),
        ("resumed", "3"),
    ]
    assert re.findall(r"epoch (\d): loss", job.output) == ["0", "1", "2", "3", "4"]


@pytest.mark.full  # tests/simulation compares these bits, too
def test_nothing_is_lost(slurm: State, as_user: Callable[..., str], until: Any) -> None:
    """The full program, stopped in the middle of an epoch, ends with the bits of a job without a signal."""
    full = f"train_requeue.py --epochs={EPOCHS}"
    identity, folder = start(slurm, as_user, "requeue.sbatch", ONE_EACH, full)
    signalled(as_user, until, identity, folder, f"Epoch 2/{EPOCHS}")
    whole, _ = start(slurm, as_user, "requeue.sbatch", ONE_EACH, full)
    job = cluster.await_job(slurm, identity)

    assert starts(as_user, identity) == ["REQUEUED", "COMPLETED"], job.output
    assert job.output.count("Stopping after iteration") == 1
    assert fingerprint(job) == fingerprint(cluster.await_job(slurm, whole))


def test_tasks_that_are_not_the_gpus_are_refused(slurm: State, as_user: Callable[..., str]) -> None:
    """Two tasks on a node with four GPUs end with the option that mends it, before anything has begun."""
    identity, folder = start(slurm, as_user, "multi_gpu.sbatch", "--ntasks-per-node=2")
    job = cluster.await_job(slurm, identity)
    errors = (folder / f"slurm-{identity}.err").read_text(encoding="utf-8")

    assert job.state == "FAILED", job.output
    assert "each task sees 4 GPUs; give each GPU its task: --ntasks-per-node=4" in errors
    assert parse_rank_lines(job.output.splitlines()) == []
    assert not (folder / "outputs").exists()


LAUNCHERS = """\
export PATH="$HOME/torch-env/bin:$PATH" OMP_NUM_THREADS=1
python one_process.py one.pt
srun python srun_ddp.py srun.pt
srun torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID \\
  --rdzv-endpoint=$(hostname):$((25000 + SLURM_JOB_ID % 7000)) torchrun_ddp.py torchrun.pt
srun python lightning_ddp.py lightning.pt
"""
"""One job on two nodes that trains one model four times."""


@pytest.mark.full  # tests/simulation compares these bits, too
def test_launchers_agree_across_nodes(slurm: State, as_user: Callable[..., str]) -> None:
    """On two nodes all three launchers give the same bits, and those of one process up to rounding."""
    inside = stage(slurm, SCRIPTS / "single_gpu.sbatch")
    options = "--nodes=2 --ntasks-per-node=1 --job-name=launchers"
    wrapped = f"cd {inside} && sbatch --parsable {options} --wrap={shlex.quote('set -e' + chr(10) + LAUNCHERS)}"
    job = cluster.await_job(slurm, as_user("bash", "-c", wrapped).strip())
    assert job.state == "COMPLETED", job.output
    folder = slurm.folder / inside.removeprefix("/")
    one, srun, torchrun, lightning = (
        torch.load(folder / f"{name}.pt") for name in ("one", "srun", "torchrun", "lightning")
    )

    for key in ("losses", "parameters"):
        assert torch.equal(torchrun[key], srun[key])
        assert torch.equal(lightning[key], srun[key])
        torch.testing.assert_close(srun[key], one[key], rtol=1e-5, atol=1e-5)


SIZES = {"single_gpu": (1, 219), "multi_gpu": (4, 55), "multi_node_multi_gpu": (8, 28)}
"""Processes of the three scripts, and their iterations in an epoch."""

SHORT = "multi_node_multi_gpu"
"""The one that runs without `--full`. The others are the same script for fewer GPUs."""

ROW = re.compile(r"(\w+_gpu) +(\d x \d) +(\d) +1 +[\d.]+ +\d+\.\d\d +\d+%")
"""A row of the table: its name, nodes and GPUs, ranks, one job, and three figures that nobody can know before."""


@dataclass(frozen=True)
class Compared:
    """Published jobs that ran beside each other from one folder.

    Args:
        inside: The folder, as the cluster sees it.
        jobs: The jobs, by the name of their script.
    """

    inside: str
    jobs: dict[str, FinishedJob]


@pytest.fixture(scope="module")
def compared(slurm: State, pytestconfig: pytest.Config) -> Compared:
    """Submit the scripts at once, as published, and wait for all."""
    chosen = SIZES if pytestconfig.getoption("--full") else (SHORT,)
    first, *others = (SCRIPTS / f"{name}.sbatch" for name in chosen)
    inside = stage(slurm, first, extra=others)
    submitted = {}
    for name in chosen:
        asked = cluster.capture(slurm, ["sbatch", "--parsable", f"{name}.sbatch"], folder=inside)
        assert asked.returncode == 0, asked.stderr
        submitted[name] = asked.stdout.strip()
    return Compared(inside, {name: cluster.await_job(slurm, job) for name, job in submitted.items()})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == SHORT else pytest.mark.full) for name in SIZES]
)
def test_script_runs_as_published(
    slurm: State, proof: Proof, compared: Compared, name: str, request: pytest.FixtureRequest
) -> None:
    """A script completes, every rank speaks, with its part of the data, and prints what was recorded."""
    script, job = SCRIPTS / f"{name}.sbatch", compared.jobs[name]
    staged = slurm.folder / compared.inside.lstrip("/") / script.name
    starts = [one for one in parse_rank_lines(job.output.splitlines()) if isinstance(one, RankStart)]

    assert staged.read_bytes() == script.read_bytes()
    assert proof.shortcomings(script, job) == [], job.output
    assert {one.world_size for one in starts} == {SIZES[name][0]}
    assert set(re.findall(r": (\d+) iter", job.output)) == {str(SIZES[name][1])}
    if request.config.getoption("--record"):
        proof.record(script, job, home=slurm.specification.slurm == "22.05")
    difference = proof.difference(script, job, read_recording(recording_path(script)))
    assert not difference, f"{difference}\npython -m pytest '{request.node.nodeid}' --record"


@pytest.mark.full
def test_comparison(
    slurm: State, as_user: Callable[..., str], compared: Compared, request: pytest.FixtureRequest
) -> None:
    """The program benchmark.py makes a table of what the jobs on 1, 4 and 8 processes left."""
    inside = compared.inside
    command = "python benchmark.py --output_dir outputs"
    printed = as_user("bash", "-c", f'cd {inside} && PATH="$HOME/torch-env/bin:$PATH" {command}')
    folder = slurm.folder / inside.removeprefix("/") / "outputs"

    assert [row[2] for row in ROW.findall(printed)] == ["1", "4", "8"], printed
    assert {"benchmark.json", "benchmark.png"} <= {path.name for path in folder.iterdir()}
    if slurm.specification.slurm != "22.05":
        return
    sha256 = hashlib.sha256(BENCHMARK.read_bytes()).hexdigest()
    if request.config.getoption("--record"):
        versions = {"slurm": slurm.root["slurm"], "python": platform.python_version()}
        versions |= {name: importlib.metadata.version(name) for name in ("torch", "lightning")}
        date = datetime.now(UTC).date().isoformat()
        lines = tuple(printed.splitlines())
        write_recording(recording_path(BENCHMARK), Recording(command, "process", date, sha256, lines, 0, versions))
    recording = read_recording(recording_path(BENCHMARK))
    again = f"If this is as it should be: python -m pytest '{request.node.nodeid}' --record"
    assert (recording.source_sha256, recording.command) == (sha256, command), again
    assert ROW.findall("\n".join(recording.output)) == ROW.findall(printed), again
