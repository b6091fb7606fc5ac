"""What Slurm itself says: each script of its entries fails again, with words that the entry knows in every generation.

`pytest tests/cluster/test_slurm_failures.py --record` writes the recordings anew; with `--full`, those that take a
minute, too. With `--slurm 24.11 --record` they say that the scripts ran there as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.limited_site import MAINTENANCE, SITE, typed
from support.proof import check_entry
from support.published import boot, cluster_name

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import Specification, State
from srunbook.explain import expression, load_entries, plain

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "examples" / "failures"
NODE_FAILURE = FAILURES / "slurm-node-failure" / "broken.sbatch"
TIME_LIMIT = FAILURES / "slurm-time-limit" / "broken.sbatch"
CREDENTIAL = FAILURES / "slurm-credential-expired" / "broken.sbatch"
SOURCES = sorted({*FAILURES.glob("slurm-*/*.sh"), *FAILURES.glob("slurm-*/*.sbatch")} - {NODE_FAILURE})

SINCE = {"slurm-cpus-conflict": "24.11"}
"""Generations that were the first to say it."""

PROGRAMS = sorted(FAILURES.glob("slurm-*/*.py"))
SEEN = {
    "slurm-array-requeue": r"^member 1 requeues the whole array$",
    "slurm-directive-ignored": r"^nodes: 1$",
    "slurm-last-command": r"^training has finished$",
    "slurm-log-empty": r"^in the log after 3 s: $",
    "slurm-log-overwritten": r"\Astart 1\s*\Z",
    "slurm-one-cpu": r"^CPUs of the task: 1$",
    "slurm-options-after-script": r"^nodes: 1, arguments of the script: --nodes=2$",
    "slurm-rank-order": r"^rank 0 runs on node2, MASTER_ADDR is node1$",
    "slurm-rank-says-nothing": r"^srun: error: \S+: task 1: Exited with exit code 1$",
    "slurm-signal-no-step": r"^the program ends$",
}
"""What failures without a message print."""

ERRORS = r"^\w+: (?:error|fatal): "

MASKS = (
    Mask(r"\*\*\* STEP \S+ ON", "*** JOB <id> ON", "a step says so as well, if it had begun on its node"),
    Mask(r"\b(Job|job|JOB|STEP|StepId=) ?\d+(\.\d+)?", r"\1 <id>", "Slurm numbers jobs as they come"),
    Mask(r"\b(job)\d{5}\b", r"\1<id>", "the job's number is part of its folder"),
    Mask(r"First task exited \d+s", "First task exited <n>s", "srun looks at its clock"),
    Mask(r"\bnode\d\b", "<node>", "Slurm takes whichever nodes are idle"),
    Mask(r"\d{4}-\d\d-\d\dT[\d:]{8}", "<time>", "the job ran at another time"),
    Mask(r"/home/(\w+)/broken[\w.-]*", r"/home/\1/<folder>", "each submission has a folder of its own"),
)


class Run(NamedTuple):
    """What a script printed, its exit status, and the rows of its job in accounting."""

    output: str
    status: int
    rows: Sequence[dict[str, str]] = ()


def submit(site: State, source: Path) -> tuple[str, str]:
    """Submit a job script, and return the number of its job and its folder."""
    program, *words = typed(source)
    folder = cluster.stage(site, source)
    result = cluster.capture(site, [program, "--parsable", *words], folder=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), folder


def await_end(site: State, job: str, folder: str) -> tuple[Run, str]:
    """Return what is in the log of a job when it has ended, and the job's state."""
    ended = cluster.await_job(site, job)
    log = cluster.capture(site, ["bash", "-c", f"cat *_{job}.out"], folder=folder).stdout
    return Run(log, ended.exit_status, ended.rows), ended.state


def run(site: State, source: Path, *, hurry: bool) -> Run:
    """Run a script in a shell of the login node, or as a job; to hurry, end the time of a job that waits for that."""
    if source.suffix == ".sh":
        result = cluster.capture(site, ["bash", "-c", "bash broken.sh"], folder=cluster.stage(site, source))
        return Run(result.stdout + result.stderr, result.returncode)
    job, folder = submit(site, source)
    if source == TIME_LIMIT and hurry:
        steps = f"until squeue --steps --jobs={job} | grep -wF {job}.0; do sleep 1; done"
        cluster.capture(site, ["bash", "-c", steps])
        cluster.capture(site, ["scontrol", "update", f"JobId={job}", "EndTime=now"], user=None)
    return await_end(site, job, folder)[0]


@pytest.fixture(scope="module")
def site(pytestconfig: pytest.Config, generation: str) -> Iterator[State]:
    """Boot a cluster with limits."""
    name = cluster_name(pytestconfig, "limits", generation)
    cluster.down(name)
    state = boot(Specification(name=name, slurm=generation, **SITE))
    cluster.capture(state, ["scontrol", "create", "reservation", *MAINTENANCE.split()], user=None)
    yield state
    cluster.down(name)


@pytest.fixture(scope="module")
def runs(site: State, request: pytest.FixtureRequest) -> Iterator[dict[Path, Future[Run]]]:
    """Start the scripts of all tests that were chosen, some side by side."""
    parameters = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    chosen = sorted({given["source"] for given in parameters if "source" in given})
    hurry = not request.config.getoption("--full")
    first = [source for source in chosen if source == TIME_LIMIT]
    with ThreadPoolExecutor(8) as pool:
        ordered = first + [source for source in chosen if source not in first]
        yield {source: pool.submit(run, site, source, hurry=hurry) for source in ordered}


def check(site: State, recorded: Callable[..., None], source: Path, done: Run) -> None:
    """Compare a run with its recording, and its messages with those that its entry knows."""
    slug = source.parent.name
    forms = [expression(form) for form in load_entries()[slug].messages]
    said = [form for form in forms if re.search(form, plain(done.output))]
    if source.stem == "fixed":
        assert done.status == 0, done.output
        assert said == [], done.output
        essential = ["."]
    else:
        assert said or slug in SEEN, done.output
        errors = [ERRORS] if source.suffix == ".sh" and re.search(ERRORS, done.output, re.MULTILINE) else []
        quoted = [form.replace("'", "[`'\"]") for form in said]  # as versions of Slurm quote
        essential = [*quoted, *errors, *filter(None, [SEEN.get(slug)])]
    command = " ".join(typed(source))
    check_entry(recorded, site, source, command, done.output, essential, done.status, done.rows, MASKS)


@pytest.mark.parametrize(
    "source",
    [pytest.param(path, marks=pytest.mark.full) if path == CREDENTIAL else path for path in SOURCES],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_slurm_says_it_again(
    source: Path, site: State, generation: str, runs: dict[Path, Future[Run]], recorded: Callable[..., None]
) -> None:
    """A broken script fails with a message that its entry knows, in every generation; a mended one ends well."""
    if generation < SINCE.get(source.parent.name, ""):
        pytest.skip("this generation says nothing")
    check(site, recorded, source, runs[source].result())


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scripts_start_the_program_beside_them(program: Path) -> None:
    """A program is run by each script of its entry."""
    scripts = [source.read_text(encoding="utf-8") for source in SOURCES if source.parent == program.parent]

    assert len(scripts) > 0
    assert all(f"python3 {program.name}\n" in script for script in scripts)


@pytest.mark.full
def test_node_loses_its_power(
    site: State, runs: dict[Path, Future[Run]], until: Any, recorded: Callable[..., None]
) -> None:
    """A job whose node is gone is told so, and ends when Slurm misses the node."""
    for other in runs.values():
        other.result()
    job, folder = submit(site, NODE_FAILURE)
    until(lambda: "sleep" in cluster.capture(site, ["squeue", "--steps", f"--jobs={job}"]).stdout)
    cluster.faults.kill_node(site, "node2")
    done, state = await_end(site, job, folder)
    cluster.faults.heal(site)

    assert state == "NODE_FAIL"
    check(site, recorded, NODE_FAILURE, done)
