"""A training that hangs on four nodes: its dumps name the rank, py-spy shows where it is; how one looks into any job.

The commands are those of the pages "A training that hangs" and "Looking into a running job".
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recordings.comparing import Mask
from srunbook import cluster
from srunbook.cluster import State

ROOT = Path(__file__).resolve().parents[2]
HANGS = ROOT / "examples" / "hangs"
JOB = HANGS / "watched.sbatch"
PROGRAMS = [HANGS / "train.py", HANGS / "stuck.py"]
DUMPS, STACKS = HANGS / "dumps.sh", HANGS / "stacks.sh"

COLUMNS = ("JobID", "JobName", "Partition", "State", "ExitCode", "Elapsed", "NodeList")
BIN = f"/home/{cluster.USER}/torch-env/bin"
FOUND = {
    JOB: [r"^2: rank 2/4 start", r"^0: step 4 loss"],
    DUMPS: [r"did not come to", r"wait in it"],
    STACKS: [r"\bload \(train", r"\bbackward \(torch/_tensor"],
}
"""What each script has to print."""

MASKS = (
    Mask(r"\bnode\d\b", "<node>", "Slurm takes whichever nodes are idle"),
    Mask(r"\b(Process|Thread) (0x)?[0-9A-Fa-f]+", r"\1 <id>", "the system numbers processes"),
    Mask(r"^[013]: ", "<waits>: ", "which rank is first is chance"),
    Mask(r"loss [\d.]+", "loss <n>", "processors round in different ways"),
    Mask(r"\.sh \d+$", ".sh <id>", "Slurm numbers jobs as they come"),
)


@dataclass
class Hanging:
    """The job, while it hangs."""

    state: State
    folder: str  # where it was submitted, on the cluster
    number: str
    home: Path  # the same folder on this machine

    @property
    def log(self) -> Path:
        """Return the place of its log."""
        return self.home / f"watched-{self.number}.out"

    def dumps(self) -> list[Path]:
        """Return its dumps."""
        return sorted(self.home.glob(f"dumps-{self.number}/*.json"))

    def hangs(self) -> bool:
        """Tell whether all dumps are of the silence after the last step; a slow step leaves some, too."""
        if not self.log.exists() or " step 4 " not in self.log.read_text():
            return False
        after = self.log.stat().st_mtime + 3
        return sum(dump.stat().st_mtime > after for dump in self.dumps()) == 4

    def rows(self) -> list[dict[str, str]]:
        """Return what accounting knows of it, while it runs."""
        asked = ["sacct", f"--jobs={self.number}", "--parsable2", "--noheader", f"--format={','.join(COLUMNS)}"]
        lines = cluster.capture(self.state, asked).stdout.splitlines()
        return [dict(zip(COLUMNS, line.split("|"), strict=True)) for line in lines]

    def run(self, script: Path) -> Any:
        """Run a script on the login node, as its reader does."""
        line = f'PYTHONPATH=/opt/srunbook/src PATH={BIN}:$PATH exec bash {script.name} "$0"'
        return cluster.capture(self.state, ["bash", "-c", line, self.number], folder=self.folder)


@pytest.fixture(scope="module")
def job(slurm: State, until: Callable[[Callable[[], object]], object]) -> Iterator[Hanging]:
    """Submit the job, and wait until it hangs and all ranks have written their dumps."""
    folder = cluster.stage(slurm, JOB, extra=[*PROGRAMS, DUMPS, STACKS])
    submitted = cluster.capture(slurm, ["sbatch", "--parsable", JOB.name], folder=folder)
    assert submitted.returncode == 0, submitted.stderr
    hanging = Hanging(slurm, folder, submitted.stdout.strip(), slurm.folder / folder.lstrip("/"))
    until(hanging.hangs)
    yield hanging
    cluster.capture(slurm, ["scancel", hanging.number])


def test_log_ends(job, entry):
    """The log says nothing of what is wrong."""
    log, rows = job.log.read_text(), job.rows()

    assert "rror" not in log
    assert {row["State"] for row in rows} == {"RUNNING"}
    entry(JOB, f"sbatch {JOB.name}", log, FOUND[JOB], rows=rows, masks=MASKS)


def test_dumps_name_the_rank(job, entry):
    """The dumps of all ranks name the one that did not come, its node and the collective."""
    done = job.run(DUMPS)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Rank 2 on node"), done.stdout
    entry(DUMPS, f"bash {DUMPS.name} {job.number}", done.stdout, FOUND[DUMPS], masks=MASKS)


def test_stacks_show_where_it_is(job, entry):
    """Py-spy on all ranks shows one in the loading of data, and three in the backward pass."""
    done = job.run(STACKS)
    loading = {line[0] for line in done.stdout.splitlines() if "load (train.py:" in line}
    waiting = {line[0] for line in done.stdout.splitlines() if "backward (torch/_tensor.py:" in line}

    assert (done.returncode, loading, waiting) == (0, {"2"}, {"0", "1", "3"}), done.stdout + done.stderr
    said = done.stdout.replace(f"{sys.prefix}/bin/", "")
    entry(STACKS, f"bash {STACKS.name} {job.number}", said, FOUND[STACKS], masks=MASKS)


def test_commands_show_a_running_job(job, as_user, until):
    """Squeue, scontrol, a second step with `--overlap` and sstat show where the job is and what it does."""
    number = job.number
    beside = ["srun", f"--jobid={number}", "--overlap", "-N1", "-n1", "-w", "node2"]
    used = ["sstat", f"--jobs={number}.0", "--noheader", "--parsable2", "--format=JobID,NTasks,MaxRSS"]

    assert f"{number} R" in as_user("squeue", "--me", "--noheader", "--format=%i %t").splitlines()
    assert f"{number}.0" in as_user("squeue", "--me", "--steps")
    assert "NodeList=node[1-4]" in as_user("scontrol", "show", "job", number)
    assert "train.py" in as_user(*beside, "ps", "-ww", "-u", "alice", "-o", "cmd")
    until(lambda: re.fullmatch(rf"{number}\.0\|4\|[1-9].*\n", as_user(*used)))  # it is sampled now and then


def test_dumps_at_a_signal(job, until):
    """A signal asks for dumps at any time, although the ranks wait in C++."""
    for dump in job.dumps():
        dump.unlink()
    cluster.capture(job.state, ["scancel", "--signal=USR1", job.number])

    until(lambda: len(job.dumps()) == 4)
