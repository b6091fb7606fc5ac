"""The guide *Runs that last* on a real Slurm, with the faults that it is about.

`pytest tests/cluster/test_runs_that_last.py --record` writes what the jobs printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from support.proof import job_run, login_run
from support.published import stage

from recordings.comparing import ROUNDING
from srunbook import cluster
from srunbook.cluster import State

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "runs_that_last"
SCRIPTS = ROOT / "slurm" / "runs_that_last"


def test_failed_row_is_submitted_again(slurm: State, recorded: Callable[..., None]) -> None:
    """Of six rows, one fails; the command that `collect.py` prints trains this row alone, and then all have results."""
    script, collect = SCRIPTS / "sweep.sbatch", EXAMPLES / "collect.py"
    folder = stage(slurm, script)
    settings = slurm.folder / folder.removeprefix("/") / "settings.csv"
    published = settings.read_text(encoding="utf-8")

    def run(command: str) -> str:
        done = cluster.capture(slurm, ["bash", "-c", f"source ~/torch-env/bin/activate; {command}"], folder=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    settings.write_text(published.replace("0.03,16", "30,16"), encoding="utf-8")
    failed = cluster.await_job(slurm, run("sbatch --parsable sweep.sbatch").strip())
    before = run("python collect.py")
    recorded(collect, login_run(slurm, collect, "python collect.py", before), masks=ROUNDING, name="failed")
    (command,) = re.findall("sbatch (.*)", before)
    settings.write_text(published, encoding="utf-8")
    again = cluster.await_job(slurm, run(f"sbatch --parsable {command}").strip())

    states = {row["JobID"].partition("_")[2]: row["State"] for row in failed.rows if "." not in row["JobID"]}
    assert states == {**dict.fromkeys("12345", "COMPLETED"), "6": "FAILED"}, failed.output
    assert command == "--array=6%4 sweep.sbatch"
    assert {row["JobID"].split("_")[1].split(".")[0] for row in again.rows} == {"6"}
    after = run("python collect.py")
    assert after.splitlines()[-1] == "6 of 6 rows have a result"
    recorded(collect, login_run(slurm, collect, "python collect.py", after), masks=ROUNDING)
    assert (settings.parent / "results.png").is_file()
    recorded(
        script, job_run(slurm, script, failed), re.compile(r"rank \d+/|row \d|epoch \d|error: ").search, name="failed"
    )


def test_copies_are_removed(slurm: State, as_user: Callable[..., str], until: Callable[..., object]) -> None:
    """A job that is cancelled while it copies or trains leaves no shards on its nodes, and its checkpoint elsewhere."""
    script = SCRIPTS / "staged.sbatch"
    inside = stage(slurm, script)
    job = as_user("bash", "-c", f"cd {inside} && sbatch --parsable {script.name}").strip()
    until(lambda: f"{job}.2" in as_user("squeue", "--steps", "--noheader", "--format=%i", f"--jobs={job}"))
    nodes = as_user("bash", "-c", f"scontrol show hostnames $(squeue --noheader --format=%N --jobs={job})").split()

    def copies() -> list[list[str]]:
        listed = [cluster.capture(slurm, ["ls", f"/tmp/shards-{job}"], machine=node).stdout for node in nodes]
        return [names.split() for names in listed]

    assert [len(names) for names in copies()] == [32, 32]
    as_user("scancel", job)
    assert cluster.await_job(slurm, job).state.startswith("CANCELLED")
    until(lambda: copies() == [[], []])
