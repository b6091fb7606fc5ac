"""The JAX guide on a real Slurm: a job that a signal stops saves, requeues itself, and resumes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.published import stage

from srunbook import cluster
from srunbook.cluster import State

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm" / "jax_multinode" / "requeue.sbatch"


@pytest.mark.full  # Slurm waits a minute before it starts a requeued job; tests/simulation has the short form
def test_signal_requeues_once_and_training_resumes(slurm: State, as_user: Callable[..., str], until: Any) -> None:
    """SIGUSR1 ends the first start after a checkpoint; the second resumes from it, and the job completes."""
    inside = stage(slurm, SCRIPT)
    folder = slurm.folder / inside.removeprefix("/")
    program = folder / "requeue.py"
    text = program.read_text(encoding="utf-8")
    program.write_text(text.replace("STEPS = 100\n", "STEPS = 1_000_000\n"), encoding="utf-8")
    small = "--ntasks-per-node=1 --gpus-per-node=1"
    identity = as_user("bash", "-c", f"cd {inside} && sbatch --parsable {small} requeue.sbatch").strip()
    log = folder / f"requeue-{identity}.out"

    def said(pattern: str) -> re.Match[str] | None:
        return re.search(pattern, log.read_text(encoding="utf-8")) if log.exists() else None

    until(lambda: said("step 40: loss"), 100)
    as_user("scancel", "--signal=USR1", identity)
    step = int(until(lambda: said(r"stopped after step (\d+)"), 60)[1])
    program.write_text(text.replace("STEPS = 100\n", f"STEPS = {step + 40}\n"), encoding="utf-8")
    job = cluster.await_job(slurm, identity, timeout=300)
    starts = as_user("sacct", "--duplicates", "--allocations", "--noheader", f"--jobs={identity}", "--format=State")

    assert starts.split() == ["REQUEUED", "COMPLETED"], job.output
    assert job.output.count(f"resumed after step {step}\n") == 1
    assert job.output.count("stopped after step") == 1
    assert (folder / "model.npz").exists()
