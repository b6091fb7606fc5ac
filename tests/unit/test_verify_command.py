"""The command `srunbook verify`: what it prints, writes and ends with, and the page that says so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from srunbook import verify
from srunbook.cli.verify import FORMS
from srunbook.slurm import SACCT_FIELDS, Accounting
from srunbook.verify import Cause, Check, Outcome, Report

ROOT = Path(__file__).resolve().parents[2]
SRUNBOOK = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')"]
HEADER = "|".join(SACCT_FIELDS)
ENDED = "2026-11-20T10:01:31"
ROWS = f"17|17|COMPLETED|0:0|1||00:00:09|node1|batch|{ENDED}\n17.0|17.0|COMPLETED|0:0|1|1|00:00:09|node1||{ENDED}\n"
RUNNING = "17|17|RUNNING|0:0|1||00:00:09|node1|batch|Unknown\n"
RANK_LINES = """\
rank 0/1 start host=node1 local_rank=0 device=cpu backend=gloo framework=torch-2.13.0 job=17 pid=7
rank 0/1 end steps=5 params=abababababab
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Make a folder with the log of job 17, and put a sacct on PATH that prints `sacct.out`."""
    for name in ("sacct", "squeue"):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/{name}.asked\ncat {tmp_path}/{name}.out\n')
        tool.chmod(0o755)
    (tmp_path / "sacct.out").write_text(f"{HEADER}\n{ROWS}")
    (tmp_path / "squeue.out").write_text("")
    (tmp_path / "slurm-17.out").write_text(RANK_LINES)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([*SRUNBOOK, "verify", *arguments], capture_output=True, text=True, check=False)


def test_a_verified_job(place):
    """A job that did what it should gives a table on stdout, nothing on stderr, and status 0."""
    done = run("17")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Job 17\n\npassed      job         COMPLETED 0:0, 1 node (node1)")
    assert done.stdout.endswith("8 passed: every check passed (status 0)\n")
    assert "--jobs=17" in (place / "sacct.asked").read_text()


def test_a_failed_job_leads_to_its_diagnosis(place):
    """A job that failed is judged by this command, and explained by another one, which it names."""
    (place / "sacct.out").write_text(f"{HEADER}\n{ROWS.replace('COMPLETED|0:0', 'FAILED|1:0')}")
    done = run("17")

    assert done.returncode == Cause.FAILED
    assert done.stderr == "srunbook verify: to find out why: srunbook explain 17\n"


def test_json(place):
    """With --json the same comes as an object, whose status is the exit status."""
    done = run("--json", "--backend", "nccl", "17")
    report = json.loads(done.stdout)

    assert (report["job"], report["results"], report["status"]) == ("17", None, done.returncode)
    assert (report["cause"], done.returncode) == ("BACKEND", Cause.BACKEND)
    assert [check["outcome"] for check in report["checks"]].count("passed") == 7
    (wrong,) = [check for check in report["checks"] if check["cause"]]
    assert wrong["evidence"].startswith("rank 0 used gloo; expected nccl")
    assert wrong["next"]


@pytest.mark.parametrize(
    "target",
    [
        "results/nowhere",
        "017",
        "0",
        "-1",
        "17 18",
        "17;touch hacked",
        "$(touch hacked)",
        "--jobs=17",
        "17\n",
        "",
        "1e3",
        "56_",
        "56_03",
        "_3",
        "56_3_1",
        "56+",
        "56+1.0",
        "56_[1-3]",
        "\u0665\u0666",
    ],
)
def test_bad_input(place, target):
    """What is neither a job id nor a folder ends with status 2, says what is allowed, and starts nothing."""
    done = run("--", target)

    assert done.returncode == Cause.BAD_INPUT
    assert "is neither a job id, which is a number such as 17, nor a folder of results, such as results/" in done.stderr
    assert done.stdout == ""
    assert not (place / "hacked").exists()
    assert not (place / "sacct.asked").exists()


def test_two_folders_of_one_job(place):
    """A job with two folders of results is not guessed at."""
    for name in ("ddp_cpu_17", "other_17"):
        (place / "results" / name).mkdir(parents=True)
    done = run("17")

    assert done.returncode == Cause.BAD_INPUT
    assert "results/ddp_cpu_17 and results/other_17: give one of them in place of the job id" in done.stderr


def test_the_folder_gets_its_summaries(place):
    """After the end, what sacct said and what was found are written into the folder, whole, the same again later."""
    folder = place / "results" / "ddp_cpu_17"
    folder.mkdir(parents=True)
    first = run("17")
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    again = run("results/ddp_cpu_17")

    assert texts.keys() == {"sacct_summary.txt", "EXECUTION_SUMMARY.md"}
    assert texts["sacct_summary.txt"] == f"{HEADER}\n{ROWS}"
    assert "| files | FAILED | metrics.csv, timings.csv, checkpoint_latest.pth missing" in texts["EXECUTION_SUMMARY.md"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == texts
    assert first.returncode == again.returncode == Cause.FILE_MISSING


def test_what_a_folder_should_hold(place):
    """A folder is judged by its name, or by a header that is a guide's; any other by its own header and --require."""
    lines = RANK_LINES.replace("pid=7", "pid=7 epochs=1") + "epoch 1/1  train_loss 0.5\n"
    (place / "slurm-17.out").write_text(lines)
    folder = place / "results" / "mine_17"
    folder.mkdir(parents=True)
    header = ",".join(FORMS["ddp_cpu_"].columns)
    (folder / "metrics.csv").write_text(f"{header}\n1{',0.5' * 8},,\n")
    known = run("17")
    (folder / "metrics.csv").write_text("epoch,train_loss\n1,0.5\n")
    own = run("17")
    required = run("--require", "model.pt", "--require", "metrics.csv", "17")
    wrong = run("--require", "models/model.pt", "17")

    assert "timings.csv, checkpoint_latest.pth missing" in known.stdout
    assert (known.returncode, own.returncode) == (Cause.FILE_MISSING, Cause.VERIFIED)
    assert "model.pt missing in" in required.stdout
    assert (required.returncode, wrong.returncode) == (Cause.FILE_MISSING, Cause.BAD_INPUT)
    assert "--require models/model.pt: give the name of a file in the folder of results, no path" in wrong.stderr


def test_a_running_job_gets_no_summary(place):
    """While the job runs, nothing is written."""
    folder = place / "results" / "ddp_cpu_17"
    folder.mkdir(parents=True)
    (place / "sacct.out").write_text(f"{HEADER}\n{RUNNING}")
    (place / "squeue.out").write_text("17 RUNNING\n")
    done = run("17")

    assert done.returncode == Cause.RUNNING
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written(place):
    """Where the summary cannot be written, that is said on stderr, and the status is that of the checks."""
    folder = place / "results" / "ddp_cpu_17"
    (folder / "EXECUTION_SUMMARY.md").mkdir(parents=True)
    done = run("17")

    assert "no summary was written: " in done.stderr
    assert done.returncode == Cause.FILE_MISSING


def test_accounting_that_lags_is_asked_again(place):
    """A job that has left the queue and runs in accounting is asked for again, until accounting has seen its end."""
    (place / "sacct.out").write_text(f"{HEADER}\n{RUNNING}")
    later = f'#!/bin/sh\nprintf "%s" "{HEADER}\n{ROWS}" >{place}/sacct.out\n'
    (place / "bin" / "squeue").write_text(later)

    assert run("17").returncode == Cause.VERIFIED


def test_accounting_that_has_not_heard_of_the_start_is_asked_again(place):
    """While accounting counts more nodes than it names, as it does for a moment, it is asked again."""
    begun = ROWS.replace("17|17|COMPLETED|0:0|1|", "17|17|COMPLETED|0:0|2|")
    assert begun != ROWS
    (place / "sacct.out").write_text(f"{HEADER}\n{begun}")
    answer = f'#!/bin/sh\ncat {place}/sacct.out\nprintf "%s" "{HEADER}\n{ROWS}" >{place}/sacct.out\n'
    (place / "bin" / "sacct").write_text(answer)

    assert run("17").returncode == Cause.VERIFIED


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("#!/bin/sh\necho 'sacct: error: slurmdbd: no' >&2\nexit 1\n", "sacct: error: slurmdbd: no"),
        ("#!/bin/sh\nexit 3\n", "sacct ended with status 3"),
        ("#!/bin/sh\necho nonsense\n", "no column JobID"),
        ("#!/does/not/exist\n", "this machine has no sacct"),
    ],
)
def test_a_sacct_that_does_not_work(place, script, problem):
    """A sacct that fails leaves the state of the job unproven, with its own words."""
    (place / "bin" / "sacct").write_text(script)
    done = run("17")

    assert done.returncode == Cause.NOT_PROVEN
    assert problem in done.stdout.splitlines()[2]


def test_a_file_that_cannot_be_read(place):
    """A log that cannot be read breaks the verification off with status 1."""
    folder = place / "results" / "ddp_cpu_17"
    (folder / "rank_0.log").mkdir(parents=True)
    done = run("17")

    assert done.returncode == Cause.BROKEN_OFF
    assert "srunbook verify: broken off: " in done.stderr


def test_what_files_say_cannot_move_the_cursor():
    """Control characters out of files are written out, and a bar does not end a cell of the summary."""
    report = Report("17", None, (Check("world", Outcome.PASSED, "\x1b[2J a|b"),))

    assert "\\x1b[2J a|b" in report.text()
    assert "\\x1b[2J a\\|b" in report.markdown()


def test_a_terminal_without_these_characters(place, monkeypatch):
    """What the encoding of the terminal lacks is escaped."""
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    (place / "slurm-17.out").write_text(RANK_LINES.replace("framework=torch", "framework=\u6a21"))
    done = run("17")

    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u6a21-2.13.0" in done.stdout


@pytest.mark.parametrize("clusters", ["a,b", "all"])
def test_several_clusters(place, monkeypatch, clusters):
    """A number means a job on each of several clusters, so sacct is not asked about all of them at once."""
    monkeypatch.setenv("SLURM_CLUSTERS", clusters)
    done = run("17")

    assert done.returncode == Cause.NOT_PROVEN
    assert "name one cluster" in done.stdout
    assert not (place / "sacct.asked").exists()


def test_nothing_checked_is_not_verified():
    """A report without a check is not proven."""
    assert Report("17", None, ()).cause is Cause.NOT_PROVEN
    assert not Accounting().final


def test_the_page_names_every_status():
    """The table on the page holds each exit status with its meaning, and no other."""
    page = (ROOT / "docs" / "tools" / "verify.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+?) \|$", page, re.MULTILINE)

    assert rows == [(str(int(cause)), cause.meaning) for cause in Cause]


def test_every_status_fits_a_shell():
    """No status is one that a shell gives to a signal or to a command that is missing."""
    assert all(0 <= cause < 126 for cause in Cause)
    assert verify.Cause is Cause


# The script of the gloo guide

SCRIPT = ROOT / "scripts" / "verify_multinode.sh"


def script(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script without srunbook on PATH, unless VENV leads there."""
    tools = [path for path in os.environ["PATH"].split(":") if not (Path(path) / "srunbook").exists()]
    own = {"PATH": ":".join(tools), "HOME": str(Path.cwd()), **environ}
    return subprocess.run(["bash", SCRIPT, *arguments], env=own, capture_output=True, text=True, check=False)


@pytest.fixture
def installed(place):
    """Make an environment in which srunbook is installed; return its folder."""
    command = place / "env" / "bin" / "srunbook"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SRUNBOOK[-1]}" "$@"\n')
    command.chmod(0o755)
    return str(place / "env")


def test_the_script_without_srunbook(place):
    """Where srunbook is not installed, the script says what is missing, where it looked, and what to do."""
    done = script("17")

    assert done.returncode == 127
    assert f"srunbook is missing: it is not on PATH, and not in {place}/torch-env/bin." in done.stderr
    assert f"{place}/torch-env/bin/pip install" in done.stderr
    assert done.stdout == ""


def test_the_script_passes_on(place, installed):
    """The script verifies the job with the backend gloo, or the one in BACKEND, and ends with the status of that."""
    assert script("17", VENV=installed).returncode == Cause.VERIFIED
    assert script("17", VENV=installed, BACKEND="nccl").returncode == Cause.BACKEND
    assert script("nowhere", VENV=installed).returncode == Cause.BAD_INPUT
    assert json.loads(script("--json", "17", VENV=installed).stdout)["job"] == "17"


def test_the_script_takes_the_newest_results(place, installed):
    """Without an argument the folder of the highest job number is taken; without one it says so."""
    empty = script(VENV=installed)
    for number in (9, 17, 10):
        (place / "results" / f"ddp_cpu_{number}").mkdir(parents=True)

    assert empty.returncode == Cause.BAD_INPUT
    assert "there is no results/ddp_cpu_*/ here; give a job id" in empty.stderr
    assert script(VENV=installed).stdout.startswith("Job 17, results/ddp_cpu_17\n")
