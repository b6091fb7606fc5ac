"""The command `srunbook verify`: what it prints, writes and ends with; the gloo guide's script; the logs of Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SACCT = """\
#!{python}
import json, sys
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[1:])
with open({rows!r}) as file:
    rows = json.load(file)
columns = options["format"].split(",")
for line in [columns, *([row.get(column, "") for column in columns] for row in rows)]:
    print(options.get("delimiter", "|").join(line))
"""
"""A `sacct` that answers as Slurm's does: any columns, any delimiter, text as its user wrote it."""

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "verify_multinode.sh"
SRUNBOOK = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')"]
LINES = "rank 0/1 start host=node1 backend=gloo job=17\nrank 0/1 end steps=5 params=abababababab\n"
ENDED = {"State": "COMPLETED", "ExitCode": "0:0", "NNodes": "1", "NodeList": "node1", "User": "alice"}
ENDED |= {"Partition": "batch", "End": "2026-11-23T03:31:28", "JobName": "train", "Elapsed": "00:00:09"}
TABLE = """\
Job 17

passed      job         COMPLETED 0:0, 1 node (node1), elapsed 00:00:09, says sacct
passed      steps       17.0 COMPLETED 0:0
passed      rank lines  1 rank in slurm-17.out
passed      world       world of 1: rank 0 on node1
passed      hosts       1 on node1
passed      backend     gloo on all ranks
passed      ends        5 steps on each rank
passed      parameters  abababababab on all 1

passed: every check passed (status 0)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder where job 17 was submitted the current one, with its log and a Slurm that knows it."""
    here = tmp_path / "my jobs"
    here.mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(here)
    (here / "slurm-17.out").write_text(LINES)
    remember(here)
    return here


def remember(place: Path, **columns: str) -> None:
    """Let sacct know job 17 of one task, which scontrol and squeue have forgotten."""
    row = ENDED | {"JobID": "17", "JobIDRaw": "17", "WorkDir": str(place), **columns}
    known = place.parent / "sacct.json"
    known.write_text(json.dumps([row, row | {"JobID": "17.0", "JobIDRaw": "17.0", "NTasks": "1"}]))
    tools = dict.fromkeys(("scontrol", "squeue"), "#!/bin/sh\nexit 1\n")
    for name, text in {"sacct": SACCT.format(python=sys.executable, rows=str(known)), **tools}.items():
        tool = place.parent / "bin" / name
        tool.write_text(text)
        tool.chmod(0o755)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([*SRUNBOOK, "verify", *arguments], capture_output=True, text=True, check=False)


def test_a_good_job(place):
    """A job that did its work gives a table on stdout, nothing on stderr, and status 0."""
    done = run("17")

    assert (done.returncode, done.stdout, done.stderr) == (0, TABLE, "")


@pytest.mark.parametrize(
    ("state", "log", "status", "said"),
    [
        ("FAILED", LINES, 1, " next: look for the first error: srunbook explain 17\n"),
        ("COMPLETED", "trained\n", 3, "not proven: 1 of 3 checks could not be decided (status 3)\n"),
    ],
)
def test_a_bad_job(place, state, log, status, said):
    """A job that failed has status 1 and a hint below its check; what a program's silence leaves open has status 3."""
    (place / "slurm-17.out").write_text(log)
    remember(place, State=state)
    done = run("17")

    assert (done.returncode, said in done.stdout) == (status, True), done.stdout


@pytest.mark.parametrize("arguments", [["results/nowhere"], ["--log", "nowhere", "17"]])
def test_wrong_usage(place, arguments):
    """Wrong usage has status 2, says what is wrong, and prints nothing on stdout."""
    done = run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_json(place):
    """With --json the same comes as an object, whose status is the exit status; --log names the log."""
    (place / "slurm-17.out").rename(place / "other")
    done = run("--json", "--backend", "nccl", "--log", "other", "17")
    report = json.loads(done.stdout)
    wrong = [check for check in report["checks"] if check["verdict"] == "failed"]

    assert (report["job"], report["verdict"], report["status"], done.returncode) == ("17", "failed", 1, 1)
    assert [check["name"] for check in wrong] == ["backend"]
    assert wrong[0]["evidence"] == "rank 0 used gloo; expected nccl"


def test_the_folder_gets_its_summaries(place):
    """A job that has ended gets two summaries; if they cannot be written, stderr says so, and the verdict stands."""
    folder = place / "results" / "a_17"
    folder.mkdir(parents=True)
    done = run("17")
    summary = (folder / "EXECUTION_SUMMARY.md").read_text()
    sacct = (folder / "sacct_summary.txt").read_text()
    (folder / "EXECUTION_SUMMARY.md").unlink()
    (folder / "EXECUTION_SUMMARY.md").mkdir()
    blocked = run("17")

    assert (done.returncode, blocked.returncode) == (0, 0)
    assert "| world | passed | world of 1: rank 0 on node1 |" in summary
    assert sacct.splitlines()[1].startswith("17|17|COMPLETED|0:0|1|")
    assert "no summary was written: " in blocked.stderr


def test_text_of_any_kind(place, monkeypatch):
    """A folder whose name is no UTF-8, and a terminal that shows ASCII alone, break nothing."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    folder = os.fsencode(place / "results") + b"/t\xe9_17"
    os.makedirs(folder)  # noqa: PTH103
    for options in ((), ("--json",)):
        done = run(*options, os.fsdecode(folder))
        assert done.returncode == 0, done.stderr
    assert os.path.exists(folder + b"/EXECUTION_SUMMARY.md")  # noqa: PTH110


# The script of the gloo guide


def script(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script without srunbook on PATH, unless VENV leads there."""
    tools = [path for path in os.environ["PATH"].split(":") if not (Path(path) / "srunbook").exists()]
    own = {"PATH": ":".join(tools), "HOME": str(Path.cwd()), **environ}
    return subprocess.run(["bash", SCRIPT, *arguments], env=own, capture_output=True, text=True, check=False)


def test_the_script_without_srunbook(place):
    """Without srunbook, the script says where it looked and what to do."""
    done = script("17")

    assert (done.returncode, done.stdout) == (127, "")
    assert f"srunbook is missing: it is not on PATH, and not in {place}/torch-env/bin." in done.stderr


def test_the_script(place):
    """The script asks for the guide's files and the backend gloo; without an argument it takes the newest folder."""
    command = place / "env" / "bin" / "srunbook"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SRUNBOOK[-1]}" "$@"\n')
    command.chmod(0o755)
    environ = {"VENV": str(place / "env")}
    empty = script(**environ)
    for number in (9, 17, 10):
        (place / "results" / f"ddp_cpu_{number}").mkdir(parents=True)
    missing = script(**environ)
    for name in ("timings.csv", "checkpoint_latest.pth"):
        (place / "results" / "ddp_cpu_17" / name).write_text("x\n")
    (place / "results" / "ddp_cpu_17" / "metrics.csv").write_text("epoch,train_loss\n1,0.5\n")

    assert (empty.returncode, missing.returncode) == (2, 1)
    assert "there is no results/ddp_cpu_*/ here; give a job id" in empty.stderr
    assert missing.stdout.startswith("Job 17, results/ddp_cpu_17\n")
    assert "metrics.csv is missing, timings.csv is missing, checkpoint_latest.pth is missing" in missing.stdout
    assert script("17", BACKEND="nccl", **environ).returncode == 1
    assert json.loads(script("--json", "17", **environ).stdout)["status"] == 0
