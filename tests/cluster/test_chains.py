"""The chapter *Chains of jobs* on a real Slurm.

`pytest tests/cluster/test_chains.py --record` writes what the jobs printed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.proof import job_run, login_run
from support.published import boot, cluster_name, stage

from recordings.comparing import ROUNDING, Mask
from srunbook import cluster
from srunbook.cluster import Specification, State

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "runs_that_last"
SCRIPTS = ROOT / "slurm" / "runs_that_last"
CHAIN, NEW_RUN, STEP = EXAMPLES / "chain.sh", EXAMPLES / "new_run.sh", SCRIPTS / "step.sbatch"
NIGHTLY = SCRIPTS / "nightly.scrontab"

NUMBERED = (Mask(r"^\d+ +", "<id> ", "Slurm numbers jobs as they come"), Mask(r":\d+\(", ":<id>(", "the same"))


@pytest.fixture
def folder(slurm: State) -> str:
    """Return a new folder on the cluster, with the programs and scripts of the guide."""
    return stage(slurm, STEP, extra=[CHAIN, NEW_RUN, SCRIPTS / "staged.sbatch"])


@pytest.fixture
def typed(slurm: State, folder: str) -> Callable[[str], str]:
    """Type a command in that folder, in the environment of the guide."""

    def run(command: str) -> str:
        done = cluster.capture(slurm, ["bash", "-c", f"source ~/torch-env/bin/activate; {command}"], folder=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def states(slurm: State, until: Callable[[Callable[[], object]], object]) -> Callable[[list[str]], list[str]]:
    """Wait for the ends of jobs; return their states, also of those that never began, which sacct leaves out."""

    def state(job: str) -> str:
        shown = cluster.capture(slurm, ["scontrol", "--oneliner", "show", "job", job]).stdout
        return re.findall(r"JobState=(\w+)", shown)[0]

    def wait(jobs: list[str]) -> list[str]:
        for job in jobs:
            until(lambda job=job: state(job) not in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED"))
        return [state(job) for job in jobs]

    return wait


def test_chain_and_a_folder_for_a_run(
    slurm: State,
    folder: str,
    typed: Callable[[str], str],
    states: Callable[[list[str]], list[str]],
    recorded: Callable[..., None],
) -> None:
    """Each job of the chain waits for the one before; the one for a failure is cancelled. A run has its own folder."""
    printed = typed("bash chain.sh")
    recorded(CHAIN, login_run(slurm, CHAIN, "bash chain.sh", printed), masks=NUMBERED)
    jobs = [line.split()[0] for line in printed.splitlines()[1:]]
    assert states(jobs) == ["COMPLETED", "COMPLETED", "COMPLETED", "CANCELLED"]
    evaluated = cluster.await_job(slurm, jobs[2])
    arguments = ["python", "evaluate.py", "model-my-staged.pt"]
    recorded(STEP, job_run(slurm, STEP, evaluated, arguments), masks=ROUNDING)

    printed = typed("bash new_run.sh wide staged.sbatch")
    recorded(NEW_RUN, login_run(slurm, NEW_RUN, "bash new_run.sh wide staged.sbatch", printed))
    (job,) = re.findall(r"\d+", printed)
    typed(f"scancel {job}")
    inside = slurm.folder / folder.removeprefix("/") / "runs" / "wide"
    assert {"stateful.py", "staged.sbatch"} <= {path.name for path in inside.iterdir()}
    assert (inside / "shards").readlink() == Path(folder, "shards")
    asked = (inside / f"job-{job}.txt").read_text(encoding="utf-8")
    assert f"JobId={job} JobName=wide" in asked
    assert f"WorkDir={folder}/runs/wide\n" in asked
    assert "torch==" in (inside / "packages.txt").read_text(encoding="utf-8")


def test_failed_step_ends_the_chain(
    slurm: State, typed: Callable[[str], str], states: Callable[[list[str]], list[str]]
) -> None:
    """If the first job fails, Slurm cancels those that wait for it, and the one for a failure shows its log."""
    typed("echo 'raise SystemExit(\"no disk\")' >pack.py")
    jobs = [line.split()[0] for line in typed("bash chain.sh").splitlines()[1:]]

    assert states(jobs) == ["FAILED", "CANCELLED", "CANCELLED", "FAILED"]
    assert "no disk" in cluster.await_job(slurm, jobs[3]).output


WAITERS = {
    "afterok": ["COMPLETED", "CANCELLED", "CANCELLED", "CANCELLED", "COMPLETED"],
    "afternotok": ["CANCELLED", "COMPLETED", "COMPLETED", "COMPLETED", "CANCELLED"],
    "afterany": ["COMPLETED"] * 5,
}
"""What becomes of a job that waits for one that completes, fails, runs out of time, is cancelled, or is requeued."""


@pytest.mark.full
def test_conditions(
    slurm: State,
    typed: Callable[[str], str],
    states: Callable[[list[str]], list[str]],
    until: Callable[[Callable[[], object]], object],
) -> None:
    """Each condition starts or cancels a job as the page's table says, a requeued one counts when it has ended."""

    def submit(options: str, command: str = "true") -> str:
        return typed(f"sbatch --parsable --mem=50M {options} --wrap='{command}'").strip()

    again = "[ $SLURM_RESTART_COUNT ] || { scontrol requeue $SLURM_JOB_ID; sleep infinity; }"
    ends = [submit("--hold"), submit("--hold", "exit 3"), submit("", "sleep infinity"), submit("--hold")]
    ends.append(submit("--requeue", again))
    kill = "--kill-on-invalid-dep=yes"
    waiting = {kind: [submit(f"{kill} --dependency={kind}:{job}") for job in ends] for kind in WAITERS}
    stuck = submit(f"--dependency=afterok:{ends[1]}")
    array = submit("--array=1-3 --hold", "[ $SLURM_ARRAY_TASK_ID != 2 ]")
    members = submit(f"{kill} --array=1-3 --dependency=aftercorr:{array}")
    typed(f"scancel {ends[3]}; scontrol release {ends[0]} {ends[1]} {array}")
    late = ["scontrol", "update", f"JobId={ends[2]}", "EndTime=now"]
    until(lambda: cluster.capture(slurm, late, user=None).returncode == 0)

    assert {kind: states(jobs) for kind, jobs in waiting.items()} == WAITERS
    assert typed(f"squeue --noheader --format=%r --jobs={stuck}") == "DependencyNeverSatisfied\n"
    typed(f"scancel {stuck}")
    assert states([f"{members}_{number}" for number in (1, 2, 3)]) == ["COMPLETED", "CANCELLED", "COMPLETED"]


def test_option_replaces_the_dependency_of_the_script(typed: Callable[[str], str]) -> None:
    """A dependency on the command line takes the place of the script's, so `chain.sh` repeats `singleton`."""
    earlier = typed("sbatch --parsable --hold --job-name=my-staged --mem=50M --wrap=true").strip()
    replaced = typed(f"sbatch --parsable --dependency=afterok:{earlier} staged.sbatch").strip()
    (alone,) = re.findall("Dependency=(.*)", typed(f"scontrol show job {replaced}"))
    train = typed("bash chain.sh").splitlines()[2]
    typed("scancel --me")

    assert alone == f"afterok:{earlier}(unfulfilled)"
    assert train.endswith("(unfulfilled),singleton(unfulfilled)")


def test_run_notes_commit_and_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a git repository, a run's folder has the commit and the changes since; its name can't be used twice."""
    shutil.copy(NEW_RUN, tmp_path)
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "a.sbatch").touch()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("sbatch", "scontrol", "pip"):
        (bin_folder / name).write_text("#!/bin/sh\necho 17\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder), prepend=":")
    who = ["-c", "user.name=A", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "a.py"], [*who, "commit", "-qm", "First"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text("x = 2\n")
    command = ["bash", NEW_RUN.name, "wide", "a.sbatch"]
    done, twice = (subprocess.run(command, cwd=tmp_path, capture_output=True, text=True) for _ in range(2))

    assert done.stdout == "job 17 in runs/wide\n", done.stderr
    noted = (tmp_path / "runs" / "wide" / "git.txt").read_text()
    assert noted.startswith("commit ")
    assert noted.endswith("-x = 1\n+x = 2\n")
    assert "cannot create directory" in twice.stderr


@pytest.fixture(scope="module")
def nightly(pytestconfig: pytest.Config, generation: str) -> Iterator[State]:
    """Boot a cluster of one node that has scrontab."""
    if generation == "22.05":
        pytest.skip("Debian's package of this generation has no scrontab")
    name = cluster_name(pytestconfig, "scron", generation)
    cluster.down(name)
    yield boot(Specification(name=name, slurm=generation, nodes=1, slurm_conf="ScronParameters=enable\n"))
    cluster.down(name)


def test_nightly_job_waits_for_its_time(nightly: State) -> None:
    """`scrontab` takes the published file, and Slurm shows a job that begins at half past two."""
    folder = stage(nightly, STEP, extra=[NIGHTLY])
    done = cluster.capture(nightly, ["scrontab", NIGHTLY.name], folder=folder)
    shown = cluster.capture(nightly, ["squeue", "--noheader", "--format=%j %T %r %S"]).stdout
    cluster.capture(nightly, ["scrontab", "-r"])

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"nightly PENDING BeginTime \S+T02:30:00\n", shown)


@pytest.mark.full
def test_nightly_job_runs_and_cancelling_it_ends_the_series(
    nightly: State, until: Callable[[Callable[[], object]], object]
) -> None:
    """At its time, the command runs in its folder; after scancel, the entries are comments that say DISABLED."""
    folder = stage(nightly, STEP, extra=[NIGHTLY])
    path = nightly.folder / folder.removeprefix("/") / NIGHTLY.name
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("30 2 * * *", "* * * * *").replace("/sweep", f"/{Path(folder).name}"))
    cluster.capture(nightly, ["scrontab", NIGHTLY.name], folder=folder)
    (job,) = cluster.capture(nightly, ["squeue", "--noheader", "--format=%i"]).stdout.split()
    log = nightly.folder / "home" / cluster.USER / f"nightly-{job}.out"
    until(lambda: log.exists() and "rows have a result" in log.read_text(encoding="utf-8"))
    cluster.capture(nightly, ["scancel", f"--user={cluster.USER}"])

    listed = cluster.capture(nightly, ["scrontab", "-l"]).stdout
    assert [line for line in listed.splitlines() if line and line[0] != "#"] == []
    assert "#DISABLED: * * * * *" in listed
