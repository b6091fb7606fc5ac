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
from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankEnd, parse_rank_lines
from srunbook.signals import EXIT_STOPPED
from srunbook.slurm import is_over
from srunbook.svgd import saved_steps

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

    def log(self, job: str) -> str:
        """Return what is in its log by now."""
        log = self.folder / f"svgd_{job}.out"
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def has_said(self, job: str, text: str) -> Callable[[], bool]:
        """Return a function that tells whether that is in its log by now."""
        return lambda: text in self.log(job)

    def ended(self, job: str) -> FinishedJob:
        """Wait for its end."""
        return cluster.await_job(self.state, job)


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
    until(jobs.has_said(job, "step 10 of"))
    at = time.time()
    jobs.as_user("scancel", "--signal=TERM", job)
    stopped = jobs.ended(job)
    over = time.time() - at

    assert stopped.exit_status == EXIT_STOPPED, stopped.output
    step = saved = saved_steps(jobs.folder / "saved")[-1]
    # A line that is on its way when srun ends a step may be lost.
    assert {end.steps for end in ends(stopped)} <= {step}, stopped.output
    assert len({end.params for end in ends(stopped)}) <= 1

    names = ("saved", "whole")
    numbers = [
        jobs.job(*program, f"--steps={step + 40}", f"--checkpoint-dir={name}", f"--output={name}.npz") for name in names
    ]
    resumed, whole = [jobs.ended(number) for number in numbers]

    assert (resumed.state, whole.state) == ("COMPLETED", "COMPLETED"), resumed.output + whole.output
    assert f"continued after step {step}" in resumed.output
    np.testing.assert_array_equal(*(np.load(jobs.folder / f"{name}.npz")["particles"] for name in names))
    verify = [f"/home/{cluster.USER}/jax-env/bin/srunbook", "verify", numbers[1]]
    proven = cluster.capture(slurm, verify, folder=jobs.inside)
    assert proven.returncode == 0, proven.stdout + proven.stderr
    outcomes(17, "SIGTERM to the JAX processes of SVGD", "all save the same step", over_s=over, lost_steps=step - saved)


def test_usr1_runs_the_job_again(submitted: Any, until: Any, outcomes: Any) -> None:
    """At SIGUSR1 a script with `--requeue` saves, is run again once, and goes on at that step."""
    jobs = submitted("slurm_multinode_advanced.sbatch")
    program = ("--every=5", "--steps=1000000", "--loci=10", "--particles=32")
    job = jobs.job(*program, options=("--nodes=2", "--cpus-per-task=1", "--mem-per-cpu=4G"))
    until(jobs.has_said(job, "step 10 of"))
    at = time.time()
    jobs.as_user("scancel", "--signal=USR1", job)
    asked = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--Format=RestartCnt,State"]
    restarts, _ = until(lambda: row if (row := jobs.as_user(*asked).split())[0] != "0" or is_over(row[1]) else None)
    over = time.time() - at
    assert restarts == "1", jobs.log(job)
    until(jobs.has_said(job, "continues after step"))
    until(lambda: "step " in jobs.log(job).partition("continues after step")[2].partition("\n")[2])
    jobs.as_user("scancel", "--signal=TERM", job)
    ended = jobs.ended(job)
    starts = jobs.as_user("sacct", "--duplicates", "--allocations", "--noheader", f"--jobs={job}", "--format=State")

    assert starts.split() == ["REQUEUED", "FAILED"]
    assert ended.exit_status == EXIT_STOPPED, ended.output
    (resumed,) = map(int, re.findall(r"continues after step (\d+)", ended.output))
    before, after = (replace(ended, output=text) for text in ended.output.split("continues after step"))
    # A line that is on its way when Slurm ends a step may be lost.
    assert {end.steps for end in ends(before)} <= {resumed}, ended.output
    assert min(map(int, re.findall(r"step (\d+) of", after.output))) > resumed
    (step,) = {*map(int, re.findall(r"stopped after step (\d+), which is saved", before.output)), resumed}
    fault = "SIGUSR1 to them, in a job that may be requeued"
    outcomes(17, fault, "saved once, one restart at that step", over_s=over, lost_steps=step - resumed)
