"""`srunbook verify` finds a log of any name: through what Slurm says, or by the pattern of the script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.left_behind import end, start
from support.pretend_sacct import install_sacct

from srunbook.verify import Cause

SRUNBOOK = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "verify"]
ENDED = {"State": "COMPLETED", "ExitCode": "0:0", "NNodes": "1", "NodeList": "node1", "User": "alice"}
ENDED |= {"Partition": "batch", "End": "2026-11-23T03:31:28"}

SHOWN = """\
JobId=17 JobName=x
   StdOut=/forged.out
   UserId=alice(20001) GroupId=alice(20001) MCS_label=N/A
   JobState=COMPLETED Reason=None Dependency=(null)
   Command=/home/alice/a
   StdOut=/nowhere.out
   WorkDir=/home/alice/a
   StdErr={path}
   StdIn=/dev/null
   StdOut={path}
   Power=
"""
"""What `scontrol show job` of Slurm 22.05.8 prints for a job whose name and script hold line breaks, shortened."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder of submission the current one, with the tools of Slurm on PATH."""
    (tmp_path / "bin").mkdir()
    submitted = tmp_path / "my jobs"
    submitted.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(submitted)
    return submitted


def remember(place: Path, *jobs: dict[str, str], scontrol: str = "") -> None:
    """Let sacct know jobs, and scontrol what it printed."""
    rows = [ENDED | {"WorkDir": str(place)} | job for job in jobs]
    steps = [
        row | {"JobID": f"{row['JobID']}.0", "JobIDRaw": f"{row['JobIDRaw']}.0", "NTasks": "1", "Partition": ""}
        for row in rows
    ]
    install_sacct(place.parent, sorted([*rows, *steps], key=lambda row: row["JobID"]))
    tool = place.parent / "bin" / "scontrol"
    (place.parent / "shown").write_text(scontrol)
    tool.write_text(f"#!/bin/sh\ncat '{place.parent}/shown'\nexit {int(not scontrol)}\n")
    tool.chmod(0o755)


def job(number: str = "17", raw: str = "", **columns: str) -> dict[str, str]:
    """Return the columns of a job."""
    return {"JobID": number, "JobIDRaw": raw or number, "JobName": "train", **columns}


def write(path: Path, number: str) -> None:
    """Write the log of a job of one rank that did what it should."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{start(0, 1, job=number)}\n{end(0, 1)}\n")


def verify(target: str = "17", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([*SRUNBOOK, target], capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("name", ["train-17.out", "logs/17_train.out", "out"])
def test_slurm_tells_the_log(place, name):
    """While Slurm remembers a job, its log is the one that Slurm names, from any folder."""
    write(place / name, "17")
    remember(place, job(), scontrol=SHOWN.format(path=place / name))
    here, elsewhere = verify(), verify(folder=place.parent)

    assert here.returncode == elsewhere.returncode == Cause.VERIFIED, here.stdout + here.stderr
    assert f"1 rank in {name}" in here.stdout


@pytest.mark.parametrize(
    ("directive", "line", "name"),
    [
        ("--output=%x-%j.out", "sbatch train.sbatch", "train-17.out"),
        (
            "-o logs/%j_%x.out --nodes=1 # where",
            "sbatch --parsable -N 1 train.sbatch --output=other",
            "logs/17_train.out",
        ),
        ("--output=other", "sbatch --output=%5j.%u train.sbatch", "00017.alice"),
        ("--output=other", "sbatch -ocommand.out train.sbatch", "command.out"),
        ("--output=other", "sbatch --output=wrapped --wrap='srun python train.py'", "wrapped"),
        ("--nodes=1", "sbatch train.sbatch", "slurm-17.out"),
    ],
)
def test_the_pattern_tells_the_log(place, directive, line, name):
    """Later, the pattern on the command line or in the script is expanded as Slurm expands it."""
    (place / "train.sbatch").write_text(
        f"#!/bin/bash\n# Trains.\n#SBATCH {directive}\n\nsrun x\n#SBATCH --output=late\n"
    )
    write(place / name, "17")
    remember(place, job(SubmitLine=line))
    done = verify(folder=place.parent)

    assert done.returncode == Cause.VERIFIED, done.stdout + done.stderr


def test_a_new_slurm_keeps_the_pattern(place):
    """Where sacct knows the pattern, no script is needed."""
    write(place / "train-17.txt", "17")
    remember(place, job(StdOut=f"{place}/%x-%j.txt", SubmitLine="sbatch gone.sbatch"))

    assert verify().returncode == Cause.VERIFIED


def test_the_logs_of_an_array(place):
    """Each element has its own log, whose name may end with anything."""
    (place / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --array=1-2 --output=%A_%a\n")
    write(place / "56_1", "57")
    write(place / "56_2", "56")
    line = "sbatch train.sbatch"
    remember(place, job("56_1", "57", SubmitLine=line), job("56_2", "56", SubmitLine=line))
    done = verify("56")

    assert done.returncode == Cause.VERIFIED, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["56_2", "56_1"])
def test_one_element(place, target):
    """An element alone has its own log, too."""
    shown = SHOWN.replace("JobId=17", "JobId={raw} ArrayJobId=56 ArrayTaskId={element}")
    write(place / "a 1", "57")
    write(place / "a 2", "56")
    records = [shown.format(raw=raw, element=n, path=place / f"a {n}") for n, raw in ((1, 57), (2, 56))]
    remember(place, job("56_1", "57"), job("56_2", "56"), scontrol="\n".join(records))

    assert verify(target).returncode == Cause.VERIFIED


@pytest.mark.parametrize("there", [True, False])
def test_hints_name_a_log_that_is_there(place, there):
    """What to do next greps the log that was found, and none that is not there."""
    remember(place, job(State="FAILED", ExitCode="1:0"), scontrol=SHOWN.format(path=place / "train 17.out"))
    if there:
        write(place / "train 17.out", "17")
    done = verify()

    assert done.returncode == Cause.FAILED
    assert ("grep -n -m1 -i error 'train 17.out'" in done.stdout) is there
    assert ("grep" in done.stdout) is there
    assert ("--format=WorkDir%100 says where it was submitted" in done.stdout) is not there
