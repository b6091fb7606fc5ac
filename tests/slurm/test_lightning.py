"""The Lightning guide on a real Slurm: a requeue by a signal, layouts that are refused, and the launchers compared."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from srunbook import cluster
from srunbook.cluster import Job, State
from srunbook.formats import EndRecord, parse_records

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "slurm" / "lightning"
EPOCHS = 20


def start(
    slurm: State, as_user: Callable[..., str], script: str, option: str = "", argument: str = ""
) -> tuple[str, Path]:
    """Submits a published script with an option of sbatch or of the program; returns number and folder on the host."""
    inside = cluster.stage(slurm, SCRIPTS / script)
    printed = as_user("bash", "-c", f"cd {inside} && sbatch --parsable {option} {script} {argument}")
    return printed.strip(), slurm.folder / inside.removeprefix("/")


def fingerprint(job: Job) -> str:
    """The one fingerprint that all ranks print at the end, after all iterations."""
    assert job.state == "COMPLETED", job.output
    ends = [record for record in parse_records(job.output.splitlines()) if isinstance(record, EndRecord)]
    ((steps, found),) = {(record.steps, record.params_sha256) for record in ends}
    assert (len(ends), steps) == (2, EPOCHS * 110)
    assert found
    return found


def test_signal_requeues_once_and_nothing_is_lost(slurm: State, as_user: Callable[..., str], until: Any) -> None:
    """A job that gets SIGUSR1 is requeued once, goes on with the next batch, and ends with the bits of another."""
    identity, folder = start(slurm, as_user, "requeue.sbatch", argument=f"--epochs={EPOCHS}")
    log = folder / f"slurm-{identity}.out"
    until(lambda: log.exists() and f"Epoch 2/{EPOCHS}" in log.read_text(encoding="utf-8"), 200)
    as_user("scancel", "--signal=USR1", identity)
    job = cluster.await_job(slurm, identity, timeout=400)
    starts = as_user("sacct", "--duplicates", "--allocations", "--noheader", f"--jobs={identity}", "--format=State")
    whole, _ = start(slurm, as_user, "requeue.sbatch", argument=f"--epochs={EPOCHS}")

    assert job.output.count("Stopping after iteration") == 1
    assert starts.split() == ["REQUEUED", "COMPLETED"]
    assert fingerprint(job) == fingerprint(cluster.await_job(slurm, whole, timeout=400))


def test_tasks_that_are_not_the_gpus_are_refused(slurm: State, as_user: Callable[..., str]) -> None:
    """Two tasks on a node with four GPUs end with the option that mends it, before anything has begun."""
    identity, folder = start(slurm, as_user, "multi_gpu.sbatch", "--ntasks-per-node=2")
    job = cluster.await_job(slurm, identity, timeout=200)
    errors = (folder / f"slurm-{identity}.err").read_text(encoding="utf-8")

    assert job.state == "FAILED", job.output
    assert "each sees 4 GPUs; give each GPU its task: --ntasks-per-node=4" in errors
    assert "record" not in job.output
    assert not (folder / "outputs").exists()


@pytest.mark.parametrize("name", ["bash", "interactive"])
def test_job_with_a_name_that_lightning_skips_is_refused(slurm: State, as_user: Callable[..., str], name: str) -> None:
    """In a job named bash or interactive, the program says so and ends with status 2."""
    identity, folder = start(slurm, as_user, "single_gpu.sbatch", f"--job-name={name}")
    job = cluster.await_job(slurm, identity, timeout=200)
    errors = (folder / f"slurm-{identity}.err").read_text(encoding="utf-8")

    assert job.exit_status == 2, job.output
    assert f"the job is named '{name}'" in errors


LAUNCHERS = """\
export PATH="$HOME/torch-env/bin:$PATH" OMP_NUM_THREADS=1
python one_process.py one.pt
srun python srun_ddp.py srun.pt
srun torchrun --nnodes=2 --nproc-per-node=1 --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID \\
  --rdzv-endpoint=$(hostname):$((25000 + SLURM_JOB_ID % 7000)) torchrun_ddp.py torchrun.pt
srun python lightning_ddp.py lightning.pt
"""
"""One job on two nodes that trains one model four times."""


def test_launchers_agree_across_nodes(slurm: State, as_user: Callable[..., str]) -> None:
    """On two nodes all three launchers give the same bits, and those of one process up to rounding."""
    inside = cluster.stage(slurm, SCRIPTS / "single_gpu.sbatch")
    options = "--nodes=2 --ntasks-per-node=1 --job-name=launchers"
    wrapped = f"cd {inside} && sbatch --parsable {options} --wrap={shlex.quote('set -e' + chr(10) + LAUNCHERS)}"
    job = cluster.await_job(slurm, as_user("bash", "-c", wrapped).strip(), timeout=400)
    assert job.state == "COMPLETED", job.output
    folder = slurm.folder / inside.removeprefix("/")
    one, srun, torchrun, lightning = (
        torch.load(folder / f"{name}.pt") for name in ("one", "srun", "torchrun", "lightning")
    )

    for key in ("losses", "parameters"):
        assert torch.equal(torchrun[key], srun[key])
        assert torch.equal(lightning[key], srun[key])
        torch.testing.assert_close(srun[key], one[key], rtol=1e-5, atol=1e-5)
