"""The first job scripts for the time limit, unmodified: what one start or one job leaves, the next continues.

Slurm waits before it starts a requeued job, so most of these tests run with `--full`; tests/simulation has the short
form. `pytest tests/cluster/test_requeue.py --full --record` writes what the jobs printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.programs import expect_abort_at_exit
from support.proof import job_run
from support.published import give_engine, stage

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import FinishedJob, State, faults

ROOT = Path(__file__).resolve().parents[2]

COLUMNS = ("JobID", "JobName", "Partition", "State", "ExitCode", "Elapsed", "NodeList")

SPOKEN = re.compile(r"rank \d+/|each step|warning: |epoch \d+: |step \d+: |stopped |resumed ")
"""Lines of the programs themselves; what torchrun, gloo and Slurm say about the signal depends on the moment."""

MOMENT = (
    Mask(r"(stopped|resumed) ((in|before) epoch|after step) \d+( after batch \d+)?", r"\1", "the signal came later"),
    Mask(r"step \d+: loss [\d.]+", "step <n>: loss", "the step at which it stopped has its loss printed as well"),
)
"""What may vary besides between two jobs that were stopped."""


@dataclass(frozen=True)
class Case:
    """A job script, and when to stop its job.

    Args:
        guide: Its folder below slurm/.
        begun: A line of the log after which the signal is sent.
        place: What the job says of the place where it stopped, and where it resumed.
        last: The last line of a training that is complete.
        edit: A line of the program, and lines to put before it.
        name: The script, without its ending.
    """

    guide: str
    begun: str
    place: str
    last: str
    edit: tuple[str, str] = ("", "")
    name: str = "requeue"

    @property
    def script(self) -> Path:
        """Return the script."""
        return ROOT / "slurm" / self.guide / f"{self.name}.sbatch"

    @property
    def job(self) -> str:
        """Return the name of its jobs."""
        return re.findall("--job-name=(\\S+)", self.script.read_text(encoding="utf-8"))[-1]


HEARD = """\
        if step == 40 and "SLURM_RESTART_COUNT" not in os.environ:
            while os.environ["SLURM_JOB_PARTITION"] != "preempt" and not told:
                os.sched_yield()
            if told:
                os.kill(os.getpid(), signal.SIGTERM)
            jax._src.distributed.global_state.client.blocking_key_value_get("RECEIVED_PREEMPTION_NOTICE", 60_000)
"""
"""JAX's listener looks once a second: the short steps of the first start would be over before."""

JAX = Case(
    "jax_multinode",
    "step 20: loss",
    r"after step \d+",
    "step 100: loss",
    ('        if own[0].platform == "cpu":', HEARD),
)

CASES = (
    Case("torchrun", "epoch 0: loss", r"in epoch \d after batch \d+", "epoch 4: loss"),
    Case("does_not_fit", "step 10: loss", r"after step \d+", "step 40: loss"),
    JAX,
    Case("lightning", "epoch 0: loss", r"before epoch \d", "epoch 4: loss"),
)

CONTAINED = tuple(replace(case, name="requeue_container") for case in CASES)


def prepare(case: Case, folder: Path) -> None:
    """Change the line of the program that a case changes."""
    program, (line, before) = folder / "requeue.py", case.edit
    program.write_text(program.read_text(encoding="utf-8").replace(line, before + line, 1), encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("case", CASES + CONTAINED, ids=lambda case: f"{case.guide}/{case.name}")
def test_stopped_job_continues_as_published(
    case: Case, slurm: State, recorded: Callable[..., None], as_user: Callable[..., str], until: Any
) -> None:
    """SIGUSR1 ends the first start after a save; the second adds to the same log, continues there, and completes."""
    contained = case in CONTAINED
    if contained and "apptainer" not in slurm.root["versions"]:
        pytest.skip("only the newest generation has Apptainer")
    if contained:
        give_engine(slurm, case.script)
    identity = begun(case, slurm, as_user, until)
    as_user("scancel", "--signal=USR1", *["--batch"] * contained, identity)  # as --signal of the script has it
    job = both_starts(cluster.await_job(slurm, identity), as_user)
    expect_abort_at_exit(job.state == "FAILED", job.output)

    assert_continued(case, job)
    recorded(case.script, job_run(slurm, case.script, job), SPOKEN.search, MOMENT, once=True, name="stopped")


@pytest.fixture
def grace(slurm: State) -> Iterator[None]:
    """Give a job in the partition `preempt` minutes to end; `scontrol` makes no difference to other jobs."""
    change = ["scontrol", "update", "PartitionName=preempt"]
    cluster.capture(slurm, [*change, "GraceTime=600"], user=None).check_returncode()
    yield
    cluster.capture(slurm, [*change, "GraceTime=0"], user=None).check_returncode()


LONG = [pytest.param(case, marks=pytest.mark.full) for case in CASES[1:]]


@pytest.mark.usefixtures("grace")
@pytest.mark.parametrize("case", [CASES[0], *LONG], ids=lambda case: case.guide)
def test_preempted_job_continues(
    case: Case, healed: State, recorded: Callable[..., None], as_user: Callable[..., str], until: Any
) -> None:
    """A job that saves and ends within the grace of its preemption is back in the queue at once, and continues."""
    identity = begun(case, healed, as_user, until, "--partition=preempt")
    faults.preempt(healed)
    until(lambda: "RUNNING" not in as_user("squeue", "--noheader", "--format=%T", f"--jobs={identity}"))
    faults.heal(healed)
    job = both_starts(cluster.await_job(healed, identity), as_user)
    once_more = ["PREEMPTED"] if healed.root["slurm"].startswith("24.11") else []  # a job that had completed

    assert_continued(case, job, *once_more)
    run = job_run(healed, case.script, job, command=f"sbatch --partition=preempt {case.script.name}")
    recorded(case.script, run, SPOKEN.search, MOMENT, once=True, name="preempted")


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.guide)
def test_members_of_an_array_train_their_own_models(
    case: Case, slurm: State, as_user: Callable[..., str], until: Any
) -> None:
    """Of an array of two, each member is stopped and requeued by itself, and completes a training of its own."""
    inside = stage(slurm, case.script)
    folder = slurm.folder / inside.removeprefix("/")
    prepare(case, folder)
    options = "--parsable --array=0-1 --output=%A_%a.out"
    array = as_user("bash", "-c", f"cd {inside} && sbatch {options} {case.script.name}").strip()
    logs = [folder / f"{array}_{member}.out" for member in (0, 1)]
    for member, log in enumerate(logs):
        until(lambda log=log: log.exists() and case.begun in log.read_text(encoding="utf-8"))
        as_user("scancel", "--signal=USR1", f"{array}_{member}")
    cluster.await_job(slurm, array)

    for member, log in enumerate(logs):
        text = log.read_text(encoding="utf-8")
        assert re.findall(f"stopped ({case.place})", text) == re.findall(f"resumed ({case.place})", text) != [], text
        assert text.count(case.last) == 1, text
        assert [*folder.rglob(f"*{case.job}-{member}*")]


GLOO = ROOT / "slurm" / "gloo_ddp" / "ddp_cpu.sbatch"


@pytest.mark.full
def test_next_job_continues_as_published(
    slurm: State, recorded: Callable[..., None], as_user: Callable[..., str]
) -> None:
    """A job that waits for the one before it resumes after its last epoch, and completes with the other losses."""
    inside = stage(slurm, GLOO)
    program = slurm.folder / inside.removeprefix("/") / "resume.py"
    published = program.read_text(encoding="utf-8")
    assert published.count("EPOCHS = 5\n") == 1
    program.write_text(published.replace("EPOCHS = 5\n", "EPOCHS = 3\n"), encoding="utf-8")
    command = ["--dependency=singleton", GLOO.name, "resume.py"]
    submit = ("bash", "-c", f"cd {inside} && sbatch --parsable {' '.join(command)}")
    first = cluster.await_job(slurm, as_user(*submit).strip())
    program.write_text(published, encoding="utf-8")
    job = cluster.await_job(slurm, as_user(*submit).strip())

    assert (first.state, job.state) == ("COMPLETED", "COMPLETED"), first.output + job.output
    assert "resumed" not in first.output
    assert job.output.count("resumed before epoch 3\n") == 1
    assert re.findall(r"epoch (\d): loss", first.output + job.output) == ["0", "1", "2", "3", "4"]

    recorded(GLOO, job_run(slurm, GLOO, job, command[2:]), SPOKEN.search, name="resumed")


def begun(case: Case, slurm: State, as_user: Callable[..., str], until: Any, *options: str) -> str:
    """Submit the job of a case, wait until it trains, and return its number."""
    inside = stage(slurm, case.script)
    folder = slurm.folder / inside.removeprefix("/")
    prepare(case, folder)
    submit = f"sbatch --parsable {' '.join(options)} {case.script.name}"
    identity = as_user("bash", "-c", f"cd {inside} && {submit}").strip()
    log = folder / f"{case.job}-{identity}.out"
    until(lambda: log.exists() and case.begun in log.read_text(encoding="utf-8"))
    return identity


def assert_continued(case: Case, job: FinishedJob, *more: str) -> None:
    """Assert that the first start stopped and was requeued, and the next one resumed there and completed."""
    (stopped,) = re.findall(f"stopped ({case.place})", job.output)
    resumed, *_ = re.findall(f"resumed ({case.place})", job.output)
    own = [row["State"] for row in job.rows if "." not in row["JobID"]]

    assert own == ["REQUEUED", *more, "COMPLETED"], job.output
    assert stopped == resumed, job.output
    assert job.output.count(case.last) == 1, job.output
    assert job.output.index("stopped ") < job.output.index("resumed ") < job.output.index(case.last)


def both_starts(job: FinishedJob, as_user: Callable[..., str]) -> FinishedJob:
    """Return a job with the rows of all its starts; accounting shows those of the last alone unless asked."""
    asked = ["sacct", "--duplicates", "--noheader", "--parsable2", f"--jobs={job.identity}"]
    said = as_user(*asked, f"--format={','.join(COLUMNS)}")
    return replace(job, rows=[dict(zip(COLUMNS, row.split("|"), strict=True)) for row in said.splitlines()])
