"""The files of a job, from what Slurm 22.05.8 printed: by each of its numbers, of output and of errors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from srunbook.slurm import OutputFiles, ask_outputs

ARRAY = """\
JobId=1 ArrayJobId=1 ArrayTaskId=2 JobName=train
   WorkDir=/home/alice/a
   StdErr=/home/alice/a/train-1.2.err
   StdIn=/dev/null
   StdOut=/home/alice/a/train-1.2.log
   Power=


JobId=2 ArrayJobId=1 ArrayTaskId=1 JobName=train
   WorkDir=/home/alice/a
   StdErr=/home/alice/a/train-1.1.err
   StdIn=/dev/null
   StdOut=/home/alice/a/train-1.1.log
   Power=

"""
COMPONENTS = """\
JobId=4 HetJobId=4 HetJobOffset=0 JobName=x
   StdErr=/home/alice/slurm-4.out
   StdOut=/home/alice/slurm-4.out

JobId=5 HetJobId=4 HetJobOffset=1 JobName=x ArrayJobId=9 ArrayTaskId=9 y
   StdErr=/home/alice/slurm-5.out
   StdOut=/home/alice/slurm-5.out
"""
WAITING = "JobId=7 ArrayJobId=7 ArrayTaskId=1-3 JobName=x\n   StdOut=/home/alice/slurm-7_4294967294.out\n"

HEADER = ("JobID", "JobIDRaw", "JobName", "User", "NodeList", "WorkDir", "SubmitLine")


def slurm(shown: str = "", **columns: str) -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    """Answer as scontrol, or else as sacct with the row of job 17."""
    row = {"JobID": "17", "JobIDRaw": "17", "JobName": "train", "User": "alice", "NodeList": "node1"}
    row |= {"WorkDir": "/home/alice", "SubmitLine": "sbatch job.sh", **columns}

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        if command[0] == "scontrol":
            return subprocess.CompletedProcess(command, int(not shown), shown, "")
        options = dict(word.removeprefix("--").partition("=")[::2] for word in command[1:])
        names = options["format"].split(",")
        if not {*names} <= row.keys():
            return subprocess.CompletedProcess(command, 1, "", "sacct: fatal: Invalid field requested")
        lines = [options["delimiter"].join(names), options["delimiter"].join(row[name] for name in names)]
        return subprocess.CompletedProcess(command, 0, "\n".join(lines) + "\n", "")

    return run


def head(*lines: str) -> Callable[[str], list[str]]:
    """Return a reader of one script."""
    return lambda path: ["#!/bin/bash", *lines] if path == "/home/alice/job.sh" else []


def test_each_number_of_an_element():
    """An element is known by its place in the array and by its own number."""
    found = ask_outputs("1", slurm(ARRAY), head())
    first, second = (OutputFiles(*(f"/home/alice/a/train-1.{n}.{end}" for end in ("log", "err"))) for n in (1, 2))

    assert found == {"1": second, "1_2": second, "2": first, "1_1": first}


def test_components():
    """So is a component, whatever the job is called."""
    found = ask_outputs("4+1", slurm(COMPONENTS), head())

    assert {number: files.output[-5:] for number, files in found.items()} == {
        "4": "4.out",
        "4+0": "4.out",
        "5": "5.out",
        "4+1": "5.out",
    }


def test_elements_that_wait_have_no_files_of_their_own():
    """Slurm shows one record for all elements that wait."""
    assert {*ask_outputs("7", slurm(WAITING), head())} == {"7"}


@pytest.mark.parametrize(
    ("lines", "columns", "files"),
    [
        ([], {}, ("slurm-17.out", "slurm-17.out")),
        (["#SBATCH -o %x.out"], {}, ("train.out", "train.out")),
        (["#SBATCH --output=%j.out --error=%j.err"], {}, ("17.out", "17.err")),
        (
            ["#SBATCH --error=%j.err"],
            {"SubmitLine": "sbatch -e over-%j job.sh --error=not-this"},
            ("slurm-17.out", "over-17"),
        ),
        (["#SBATCH -e x"], {"StdOut": "/tmp/%j", "StdErr": "/tmp/%j.err"}, ("/tmp/17", "/tmp/17.err")),
        (["#SBATCH -e x"], {"StdOut": "/tmp/%j", "StdErr": ""}, ("/tmp/17", "/tmp/17")),
    ],
    ids=["default", "short", "both", "command-line-wins", "columns-of-24.05", "columns-without-errors"],
)
def test_once_scontrol_has_forgotten(lines, columns, files):
    """Accounting knows the patterns, or the script and the command line do."""
    found = ask_outputs("17", slurm(**columns), head(*lines))["17"]

    assert (found.output, found.errors) == tuple(f if f.startswith("/") else f"/home/alice/{f}" for f in files)
