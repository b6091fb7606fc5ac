"""What signals do to jobs of SVGD: they stop them, or Slurm runs them again. Row 17."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.published import stage

from srunbook import cluster
from srunbook.checkpoint import EXIT_STOPPED, Checkpoints
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankEnd, parse_rank_lines

SCRIPTS = Path(__file__).resolve().parents[3] / "slurm" / "svgd"


class Submitted:
    """Jobs of one script, submitted from one folder.

    Args:
        state: The cluster.
        as_user: Runs a command there.
        script: Name of the script.
    """

    def __init__(self, state: State, as_user: Callable[..., str], script: str) -> None:
        self.state, self.as_user, self.script = state, as_user, script
        self.inside = stage(state, SCRIPTS / script)
        self.folder = state.folder / self.inside.lstrip("/")

    def job(self, *arguments: str, options: tuple[str, ...] = ()) -> str:
        """Submit the script, with arguments of the program and options of sbatch; return the job's number."""
        command = ["sbatch", "--parsable", f"--chdir={self.inside}", *options, f"{self.inside}/{self.script}"]
        return self.as_user(*command, *arguments).strip()

    def has_said(self, job: str, text: str) -> Callable[[], bool]:
        """Return a function that tells whether that is in its log by now."""
        log = self.folder / f"svgd_{job}.out"
        return lambda: log.exists() and text in log.read_text(encoding="utf-8")

    def ended(self, job: str, seconds: float) -> FinishedJob:
        """Wait for its end."""
        return cluster.await_job(self.state, job, timeout=seconds)


@pytest.fixture
def submitted(slurm: State, as_user: Callable[..., str]) -> Callable[[str], Submitted]:
    """Make a folder with a script."""
    return lambda script: Submitted(slurm, as_user, script)


def ends(job: FinishedJob) -> list[RankEnd]:
    """Find the end lines of a job's ranks."""
    return [record for record in parse_rank_lines(job.output.splitlines()) if isinstance(record, RankEnd)]


def test_sigterm_saves_one_step_and_resumes_equal(submitted: Any, slurm: State, until: Any, outcomes: Any) -> None:
    """Row 17: told to stop by SIGTERM, all processes save the same step; the next job ends exactly as one undisturbed.

    Typed as on the page, the verifier proves the latter.
    """
    jobs = submitted("small_scale.sbatch")
    program = ("--every=5", "--loci=10")
    job = jobs.job(*program, "--steps=1000000", "--checkpoint-dir=saved")
    until(jobs.has_said(job, "step 10 of"), 300)
    at = time.time()
    jobs.as_user("scancel", "--signal=TERM", job)
    stopped = jobs.ended(job, 300)
    over = time.time() - at

    assert stopped.exit_status == EXIT_STOPPED, stopped.output
    (step,) = {end.steps for end in ends(stopped)}
    assert 1 <= len(ends(stopped)) <= 2, stopped.output  # what is on its way when srun kills a step may be lost
    assert len({end.params for end in ends(stopped)}) == 1
    saved = Checkpoints(jobs.folder / "saved").steps()[-1]
    assert saved == step

    names = ("saved", "whole")
    numbers = [
        jobs.job(*program, f"--steps={step + 40}", f"--checkpoint-dir={name}", f"--output={name}.npz") for name in names
    ]
    resumed, whole = [jobs.ended(number, 300) for number in numbers]

    assert (resumed.state, whole.state) == ("COMPLETED", "COMPLETED"), resumed.output + whole.output
    assert f"went on after step {step}" in resumed.output
    np.testing.assert_array_equal(*(np.load(jobs.folder / f"{name}.npz")["particles"] for name in names))
    verify = [f"/home/{cluster.USER}/jax-env/bin/srunbook", "verify", numbers[1]]
    proven = cluster.capture(slurm, verify, folder=jobs.inside, timeout=60)
    assert proven.returncode == 0, proven.stdout + proven.stderr
    outcomes(17, "SIGTERM to the JAX processes of SVGD", "all save the same step", over_s=over, lost_steps=step - saved)


def test_usr1_runs_the_job_again(submitted: Any, until: Any, outcomes: Any) -> None:
    """At SIGUSR1 a script with `--requeue` saves, is run again once, and goes on at that step to its end."""
    jobs = submitted("slurm_multinode_advanced.sbatch")
    program = ("--every=20", "--steps=1500", "--loci=10", "--particles=32")
    job = jobs.job(*program, options=("--nodes=2", "--cpus-per-task=2"))
    until(jobs.has_said(job, "step 20 of"), 300)
    at = time.time()
    jobs.as_user("scancel", "--signal=USR1", job)
    until(jobs.has_said(job, "stopped after step"), 300)
    over = time.time() - at
    ended = jobs.ended(job, 400)
    starts = jobs.as_user("sacct", "--duplicates", "--allocations", "--noheader", f"--jobs={job}", "--format=State")

    assert ended.state == "COMPLETED", ended.output
    assert starts.split() == ["REQUEUED", "COMPLETED"]
    before, _, after = ended.output.partition("goes on after step")  # what the second run says first
    first, last = (ends(replace(ended, output=text)) for text in (before, after))
    assert 1 <= len(first) <= 2, ended.output  # a line that is on its way when Slurm kills the step may be lost
    (step,) = {end.steps for end in first}
    resumed = int(re.findall(r"went on after step (\d+)", ended.output)[0])
    assert f"stopped after step {step}, which is saved" in ended.output
    assert resumed == step < 1500
    assert [end.steps for end in last] == [1500, 1500]
    fault = "SIGUSR1 to them, in a job that may be requeued"
    outcomes(17, fault, "saved once, one restart at that step", over_s=over, lost_steps=step - resumed)
