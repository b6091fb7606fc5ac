"""What signals do to jobs of SVGD: they stop them, or Slurm runs them again."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
from support.published import stage, verify

from srunbook.cluster import State
from srunbook.ranklog import RankEnd, parse_rank_lines
from srunbook.signals import EXIT_STOPPED
from srunbook.svgd import saved_steps

SCRIPTS = Path(__file__).resolve().parents[3] / "slurm" / "svgd"
LOG = "--output=slurm-%j.out"


def ends(text: str) -> list[RankEnd]:
    """Find the end lines of a job's ranks."""
    return [record for record in parse_rank_lines(text.splitlines()) if isinstance(record, RankEnd)]


def test_sigterm_saves_one_step_and_resumes_equal(slurm: State, sbatch: Any, until: Any, outcomes: Any) -> None:
    """Told to stop by SIGTERM, all processes save the same step; the next job ends exactly as one undisturbed.

    Typed as on the page, the verifier proves the latter.
    """
    folder = stage(slurm, SCRIPTS / "small_scale.sbatch")
    command = (LOG, "small_scale.sbatch", "--every=5", "--loci=10")
    trial = sbatch(folder, *command, "--steps=1000000", "--checkpoint-dir=saved")
    until(lambda: "step 10 of" in trial.file("out"))
    at = time.time()
    trial.signal("TERM")
    over = trial.await_over() - at
    stopped = trial.await_end()

    assert stopped.exit_status == EXIT_STOPPED, stopped.output
    step = saved_steps(trial.folder / "saved")[-1]
    # A line that is on its way when srun ends a step may be lost.
    assert {end.steps for end in ends(stopped.output)} <= {step}, stopped.output
    assert len({end.params for end in ends(stopped.output)}) <= 1

    names = ("saved", "whole")
    trials = [
        sbatch(folder, *command, f"--steps={step + 40}", f"--checkpoint-dir={name}", f"--output={name}.npz")
        for name in names
    ]
    resumed, whole = [trial.await_end() for trial in trials]

    assert (resumed.state, whole.state) == ("COMPLETED", "COMPLETED"), resumed.output + whole.output
    assert f"continued after step {step}" in resumed.output
    np.testing.assert_array_equal(*(np.load(trial.folder / f"{name}.npz")["particles"] for name in names))
    proven = verify(slurm, whole.identity, folder)
    assert proven.returncode == 0, proven.stdout + proven.stderr
    outcomes("SIGTERM to the JAX processes of SVGD", "all save the same step", over_s=over, lost_steps=0)


def test_usr1_runs_the_job_again(slurm: State, sbatch: Any, until: Any, outcomes: Any) -> None:
    """At SIGUSR1 a script with `--requeue` saves, is run again once, and goes on at that step."""
    folder = stage(slurm, SCRIPTS / "slurm_multinode_advanced.sbatch")
    options = (LOG, "--nodes=2", "--cpus-per-task=1", "--mem-per-cpu=4G")
    program = ("--every=5", "--steps=1000000", "--loci=10", "--particles=32")
    trial = sbatch(folder, *options, "slurm_multinode_advanced.sbatch", *program)
    until(lambda: "step 10 of" in trial.file("out"))
    at = time.time()
    trial.signal("USR1")
    until(lambda: trial.is_back() or trial.has_ended())
    over = time.time() - at
    assert trial.restarts() == "1", trial.file("out")
    until(lambda: re.search(r"(?s)continues after step[^\n]*\n.*step ", trial.file("out")))
    trial.signal("TERM")
    ended = trial.await_end()

    assert trial.account().split() == ["REQUEUED", "FAILED"]
    assert ended.exit_status == EXIT_STOPPED, ended.output
    (resumed,) = map(int, re.findall(r"continues after step (\d+)", ended.output))
    before, after = ended.output.split("continues after step")
    # A line that is on its way when Slurm ends a step may be lost.
    assert {end.steps for end in ends(before)} <= {resumed}, ended.output
    assert min(map(int, re.findall(r"step (\d+) of", after))) > resumed
    (step,) = {*map(int, re.findall(r"stopped after step (\d+), which is saved", before)), resumed}
    fault = "SIGUSR1 to them, in a job that may be requeued"
    outcomes(fault, "saved once, one restart at that step", over_s=over, lost_steps=step - resumed)
