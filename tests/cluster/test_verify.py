"""`srunbook verify` on real jobs: each way in which one can end has a status and a sentence of its own.

All jobs are submitted at once and end beside each other; each test waits for its own.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from recording_files import Recording, read_recording, recording_path, write_recording
from support.comparing import Mask, compare
from support.published import stage

from srunbook import cluster
from srunbook.cluster import State
from srunbook.slurm import ask_accounting
from srunbook.verify import Cause

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / "slurm" / "torchrun" / "run_distributed.sbatch"
GLOO = ROOT / "slurm" / "gloo_ddp" / "ddp_2node_cpu.sbatch"
SCRIPT = ROOT / "scripts" / "verify_multinode.sh"

MASKS = (
    Mask(r"\b[0-9a-f]{12}\b", "<hash>", "sums over a network round in the order of arrival"),
    Mask(r"\bnode(\[[\d,-]+\]|\d+)", "<nodes>", "Slurm takes whichever nodes are idle"),
    Mask(r"\d[\d.:]*(e-?\d+)?", "<n>", "ids, sizes and times differ, and processors round in different ways"),
)

RANKS = """\
import os, subprocess, sys
rank = f"rank {os.environ['SLURM_PROCID']}/{os.environ['SLURM_NTASKS']}"
place = f"host={os.environ['SLURMD_NODENAME']} local_rank={os.environ['SLURM_LOCALID']} pid={os.getpid()}"
sys.stdout.write(f"{rank} start {place} device=cpu backend=gloo job={os.environ['SLURM_JOB_ID']}\\n")
sys.stdout.flush()
status = subprocess.run(sys.argv[1:]).returncode
if status:
    sys.exit(status)
sys.stdout.write(f"{rank} end steps=1 params={'ab' * 6}\\n")
"""
"""A program that says what a rank says, and runs a command in between."""

RUN = "srun python3 ranks.py"
GREEDY = "python3 -c 'print(len(bytearray(300 * 2**20)))'"
AGAIN = '[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue $SLURM_JOB_ID; sleep infinity; }'

NAME = "$(printf 'x|COMPLETED|0:0|1|1|0|node1\\n%s|x|COMPLETED|0:0|1||0|node1\\n%s.0|x' $SLURM_JOB_ID $SLURM_JOB_ID)"
"""The name of a step that ends its own row of sacct, and holds one of a job that went well."""

JOBS = {
    "good": ("-N2", f"{RUN} true"),
    "failed": ("-N2", "srun --kill-on-bad-exit=1 python3 ranks.py false; exit 3"),
    "step-failed": ("-N2", f"{RUN} false; exit 0"),
    "cancelled": ("-N2", f"{RUN} sleep infinity"),
    "timeout": ("-N2 --time=1", f"{RUN} sleep 600"),
    "out-of-memory": ("--mem=100M", f"{RUN} {GREEDY}"),
    "node-fail": ("-N2 --no-requeue -w node3,node4", f"{RUN} sleep infinity"),
    "nothing": ("-N2", "exit 0"),
    "no-lines": ("-N2", "srun true"),
    "held": ("--requeue", "scontrol requeuehold $SLURM_JOB_ID; sleep infinity"),
    "again": ("-N2 --requeue --open-mode=append", f"{AGAIN}; {RUN} true"),
    "running": ("-N2", f"{RUN} sleep infinity"),
    "pending": ("--hold", "exit 0"),
    "one-host": ("-N2 --ntasks-per-node=2", "srun -N1 -n2 python3 ranks.py true"),
    "alone": ("-N2", "srun env SLURM_PROCID=0 SLURM_NTASKS=1 python3 ranks.py true"),
    "array": ("-N1 --array=1-3", f"{RUN} test $SLURM_ARRAY_TASK_ID != 2"),
    "components": ("-N1 : -N1 --exclude=node3,node4", "srun --het-group=0,1 python3 ranks.py true"),
    "two-steps": ("-N2", f"srun -n1 -N1 true; {RUN} true; {RUN} true"),
    "forged": ("-N1", f'srun false; srun --job-name="{NAME}" python3 ranks.py true'),
}
"""Options of sbatch, and the command of the job."""


@dataclass
class Jobs:
    """Jobs on the cluster, by what becomes of them.

    Args:
        state: The cluster.
        folder: Where they were submitted.
        numbers: Their numbers.
        until: Polls.
    """

    state: State
    folder: str
    numbers: dict[str, str]
    until: Callable[[Callable[[], object]], object]

    def ended(self, name: str) -> str:
        """Wait for the end of a job, by accounting, since Slurm itself soon forgets it; return its number."""
        number = self.numbers[name]

        def over() -> bool:
            found = ask_accounting(number, lambda command: cluster.capture(self.state, command))
            parts = [row for row in found.last if not row.step]
            return bool(parts) and all(row.ended for row in parts)

        self.until(over)
        return number

    def verify(self, *arguments: str, folder: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command as the user, on the login node."""
        command = [f"/home/{cluster.USER}/torch-env/bin/srunbook", "verify", *arguments]
        return cluster.capture(self.state, command, folder=folder or self.folder)


@pytest.fixture(scope="module")
def jobs(slurm: State, until: Callable[[Callable[[], object]], object], tmp_path_factory) -> Iterator[Jobs]:
    """Submit all jobs; wait until those that are to be ended from outside have started."""
    script = tmp_path_factory.mktemp("verify") / "verify.sbatch"
    script.touch()
    (script.parent / "ranks.py").write_text(RANKS)
    folder = cluster.stage(slurm, script)
    numbers = {}
    for name, (options, command) in JOBS.items():
        nodes = [] if "-w" in options else ["--exclude=node3,node4"]
        argv = ["sbatch", "--parsable", *nodes, *options.split(), f"--wrap={command}"]
        done = cluster.capture(slurm, argv, folder=folder)
        assert done.returncode == 0, done.stderr
        numbers[name] = done.stdout.strip()
    home = slurm.folder / folder.lstrip("/")
    started = [home / f"slurm-{numbers[name]}.out" for name in ("cancelled", "node-fail")]
    until(lambda: all(log.exists() and log.read_text().count("start") == 2 for log in started))
    cluster.capture(slurm, ["scancel", numbers["cancelled"]])
    yield Jobs(slurm, folder, numbers, until)
    cluster.capture(slurm, ["scancel", f"--user={cluster.USER}"], user=None)
    cluster.faults.heal(slurm)
    until(lambda: set(cluster.status(slurm.specification.name).values()) == {"idle"})


@pytest.fixture(scope="module")
def dead(jobs: Jobs) -> None:
    """Kill the node of one of them; Slurm notices while other tests run."""
    cluster.faults.kill_node(jobs.state, "node4")


@pytest.mark.parametrize("name", ["running", "held", "pending"])
def test_a_job_that_has_not_ended(jobs, until, name):
    """A job that runs, one that was requeued and waits, and one that never started are told apart."""
    cause = {"running": Cause.RUNNING, "held": Cause.REQUEUED, "pending": Cause.PENDING}[name]
    sentence = {
        "running": "RUNNING, 2 nodes (node[1-2]), elapsed 00:",
        "held": "requeued: PENDING, 1 node, ",
        "pending": "PENDING, 1 node, elapsed 00:00:00, says sacct",
    }[name]
    expected = f"FAILED      job  {sentence}"  # accounting hears of a requeue in two steps
    until(lambda: expected in (said := jobs.verify(jobs.numbers[name])).stdout and said.returncode == cause)


def test_a_job_of_the_torchrun_guide(jobs):
    """The published script of another guide is verified by its job's number, where it was submitted."""
    folder = stage(jobs.state, TORCHRUN)
    job = cluster.submit(jobs.state, TORCHRUN, ["--epochs", "1"], folder=folder)
    done = jobs.verify("--json", "--backend", "gloo", job.identity, folder=folder)
    report = json.loads(done.stdout)

    assert done.returncode == report["status"] == Cause.VERIFIED, done.stdout
    assert "4 ranks in slurm-" in next(check["evidence"] for check in report["checks"] if check["name"] == "rank lines")


@pytest.fixture(scope="module")
def gloo(jobs: Jobs) -> tuple[str, str]:
    """Run a job of the gloo guide to its end; return its number, and the folder where it was submitted."""
    folder = stage(jobs.state, GLOO, extra=[SCRIPT])
    size = ["--epochs=3", "--days=7", "--max-steps=20"]
    job = cluster.submit(jobs.state, GLOO, size, folder=folder)
    return job.identity, folder


def test_a_job_of_the_gloo_guide(jobs, gloo, request):
    """Every check passes for a job of the gloo guide, its folder gets both summaries, and the page shows this."""
    job, folder = gloo
    done = cluster.capture(jobs.state, ["bash", SCRIPT.name, job], folder=folder)
    results = jobs.state.folder / folder.lstrip("/") / "results" / f"ddp_cpu_{job}"
    lines = tuple(line.rstrip() for line in done.stdout.splitlines())

    assert done.returncode == Cause.VERIFIED, done.stdout
    assert lines[-1] == "13 passed: every check passed (status 0)"
    assert f"{job}.0|{job}.0|COMPLETED|0:0|2|2|" in (results / "sacct_summary.txt").read_text()
    assert "| parameters | passed | " in (results / "EXECUTION_SUMMARY.md").read_text()

    sha256 = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()
    if request.config.getoption("--record"):
        recording = Recording(
            command=f"bash {SCRIPT.name} {job}",
            where="process",
            date=datetime.now(UTC).date().isoformat(),
            source_sha256=sha256,
            output=lines,
            versions={"slurm": jobs.state.root["slurm"], "python": platform.python_version()},
        )
        write_recording(recording_path(SCRIPT), recording)
    again = f"If this is as it should be: python -m pytest '{request.node.nodeid}' --record"
    recording = read_recording(recording_path(SCRIPT))
    assert recording.source_sha256 == sha256, again
    difference = compare(recording.output, lines, MASKS)
    assert not difference, f"{difference}\n{again}"


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "cause", "sentence"),
    [
        ("metrics.csv", r"(?m)^(2,\d\.\d\d\d)\d*", r"\g<1>9999", Cause.LOSS_DIFFERS, "epoch 2: train_loss is "),
        ("metrics.csv", r"(?m)^(2,\d\.\d*),[^,]*", r"\g<1>,nan", Cause.NOT_FINITE, "epoch 2: val_loss is nan"),
        ("metrics.csv", r"(?m)^2,.*\n", "", Cause.EPOCH_MISSING, "epoch 2 is missing; 3 were asked for"),
        ("rank_1.log", "params=[0-9a-f]{8}", "params=01234567", Cause.PARAMETERS, "rank 1 has "),
        ("rank_1.log", "(?s).+", "", Cause.RANK_MISSING, "rank_1.log has no start line"),
    ],
)
def test_its_files_are_changed(jobs, gloo, name, pattern, instead, cause, sentence):
    """A change in one file of that job, by a digit or by a line, is found; without it all is well again."""
    job, folder = gloo
    path = jobs.state.folder / folder.lstrip("/") / "results" / f"ddp_cpu_{job}" / name
    text = path.read_text()
    changed = re.sub(pattern, instead, text)
    path.write_text(changed)
    found = jobs.verify(job, folder=folder)
    path.write_text(text)

    assert changed != text
    assert found.returncode == cause, found.stdout
    assert sentence in found.stdout
    assert jobs.verify(job, folder=folder).returncode == Cause.VERIFIED


def test_an_unknown_job(jobs):
    """A number that no job has is said to be unknown."""
    done = jobs.verify("999999")

    assert done.returncode == Cause.UNKNOWN_JOB
    assert "sacct knows no job 999999" in done.stdout


def test_a_good_job(jobs):
    """A job that did what it should passes every check."""
    done = jobs.verify(jobs.ended("good"))

    assert done.returncode == Cause.VERIFIED, done.stdout
    assert "8 passed: every check passed (status 0)" in done.stdout


def test_a_job_that_was_requeued_and_ended(jobs):
    """A job that was requeued and then completed passes, and its earlier attempt is told."""
    done = jobs.verify(jobs.ended("again"))

    assert done.returncode == Cause.VERIFIED, done.stdout
    assert "says sacct; attempt 2, the earlier ended REQUEUED" in done.stdout


@pytest.mark.parametrize("name", ["components", "two-steps"])
def test_steps_and_components(jobs, name):
    """A step that runs on two components is one world, and of several steps each is judged."""
    done = jobs.verify(jobs.ended(name))

    assert done.returncode == Cause.VERIFIED, done.stdout


def test_elements_of_an_array(jobs):
    """An array is as good as its worst element; each can be judged alone, by either of its numbers."""
    number = jobs.ended("array")
    whole = jobs.verify(number)
    raw = cluster.capture(jobs.state, ["sacct", "-Xn", "-P", f"-j{number}_1", "-oJobIDRaw"]).stdout.strip()
    alone = [jobs.verify(one).returncode for one in (f"{number}_1", f"{number}_2", f"{number}_3", raw)]

    assert whole.returncode == Cause.FAILED, whole.stdout
    assert [
        line.split()[:2] for line in whole.stdout.splitlines() if f" {number}_" in line and "next:" not in line
    ] == [
        ["passed", f"{number}_1"],
        ["FAILED", f"{number}_2"],
        ["passed", f"{number}_3"],
    ]
    assert alone == [Cause.VERIFIED, Cause.FAILED, Cause.VERIFIED, Cause.VERIFIED]


def test_no_rank_lines(jobs):
    """A good job whose program prints no rank lines is not proven."""
    done = jobs.verify(jobs.ended("no-lines"))

    assert done.returncode == Cause.NOT_PROVEN, done.stdout
    assert "found no start line in slurm-" in done.stdout


@pytest.mark.parametrize(
    ("name", "cause", "sentence"),
    [
        ("forged", Cause.FAILED, ".0 is FAILED 1:0; expected COMPLETED 0:0"),
        ("failed", Cause.FAILED, "FAILED 3:0, 2 nodes (node[1-2]), elapsed 00:"),
        ("step-failed", Cause.FAILED, ".0 is FAILED 1:0; expected COMPLETED 0:0"),
        ("cancelled", Cause.CANCELLED, "CANCELLED 0:0, 2 nodes (node[1-2]), elapsed 00:"),
        ("out-of-memory", Cause.OUT_OF_MEMORY, ".0 is OUT_OF_MEMORY 0:125; expected COMPLETED 0:0"),
        ("node-fail", Cause.NODE_FAIL, "job         NODE_FAIL "),
        ("nothing", Cause.RAN_NOTHING, ".batch, and no step of srun"),
        ("one-host", Cause.HOSTS, "both ranks ran on node1; the job was given node[1-2]"),
        ("alone", Cause.WORLD_SIZE, "world size 1, 2 times, instead of 2: rank 0 is pid "),
        ("timeout", Cause.TIMEOUT, "TIMEOUT 0:0, 2 nodes (node[1-2]), elapsed 00:"),
    ],
)
def test_a_bad_job(jobs, dead, name, cause, sentence):
    """Each way in which a real job goes wrong has its own status, its own sentence, and a next step."""
    if name == "out-of-memory":
        assert jobs.state.plugins["constrain"], "this machine has no cgroup version 1: no memory limits"
    done = jobs.verify(jobs.ended(name))

    assert done.returncode == cause, done.stdout
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert sentence in lines[first]
    assert lines[first + 1].strip().startswith("next: ")
