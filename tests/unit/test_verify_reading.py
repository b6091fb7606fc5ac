"""`srunbook verify` reads whatever lies in a folder: it neither hangs, nor breaks, nor grows, nor passes on escapes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.left_behind import COMPLETED, HEADER, Left, end, epoch_line, lay_out, start

from srunbook import verify
from srunbook._files import read_whole
from srunbook.verify import Cause, Check, Outcome, Report, _logs

SRUNBOOK = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "verify"]
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """Lay out what a job of two ranks and three epochs leaves behind."""
    return lay_out(tmp_path)


@pytest.fixture
def place(left: Left, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to the folder of that job, and put a sacct on PATH that knows it."""
    tool = left.folder / "bin" / "sacct"
    tool.parent.mkdir()
    (left.folder / "sacct.out").write_text(f"{HEADER}\n{COMPLETED}")
    tool.write_text(f"#!/bin/sh\ncat {left.folder}/sacct.out\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(left.folder)
    return left.folder


def run(*arguments: str, text: bool = True) -> subprocess.CompletedProcess:
    """Run the command; it must not hang."""
    return subprocess.run([*SRUNBOOK, *arguments], capture_output=True, text=text, check=False)


# Files that are none

LOG, TABLE, SUMMARY, SACCT = (
    f"results/ddp_cpu_17/{name}" for name in ("rank_1.log", "metrics.csv", "EXECUTION_SUMMARY.md", "sacct_summary.txt")
)


@pytest.mark.parametrize("name", [LOG, TABLE, SUMMARY, SACCT, "slurm-17.out"])
def test_a_pipe_is_not_waited_for(place, name):
    """A FIFO in the place of any file that is read does not hang the command."""
    path = place / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    done = run("17")

    assert "Traceback" not in done.stderr
    assert done.returncode != Cause.VERIFIED or name in (SUMMARY, SACCT, "slurm-17.out")
    if name == LOG:
        assert "rank_1.log" in done.stderr
        assert "a pipe, not a regular file" in done.stderr


@pytest.mark.parametrize(("target", "kind"), [("/dev/zero", "a device"), ("/dev/tty", "a device"), (".", "a folder")])
def test_a_link_to_something_else(place, target, kind):
    """A link to a device is not read without end, and a folder is named as such."""
    (place / LOG).unlink()
    (place / LOG).symlink_to(target)
    done = run("17")

    assert done.returncode == Cause.BROKEN_OFF
    assert f"{kind}, not a regular file" in done.stderr


def test_a_file_of_proc_has_no_end(left):
    """A file that says it is empty is not read further: those of /proc may have no end, or wait for one."""
    assert read_whole(Path("/proc/self/status")) == b""
    (left.results / "rank_1.log").unlink()
    (left.results / "rank_1.log").symlink_to("/proc/kmsg")

    assert left.judge().cause is Cause.RANK_MISSING


# Text that is none


def test_text_that_is_not_utf_8(place):
    """Bytes that are not UTF-8, in logs, tables, summaries and names, end in a verdict."""
    folder = place / "results" / "ddp_cpu_17"
    (folder / "EXECUTION_SUMMARY.md").write_bytes(b"\xff\xfe")
    (folder / "sacct_summary.txt").write_bytes(b"\xff\xfe")
    with (folder / "rank_0.log").open("ab") as log:
        log.write(b"\xff\xfe\x00 rank \xff\n")
    done = run("17")

    assert (done.returncode, done.stderr) == (Cause.VERIFIED, "")
    assert "| parameters | passed |" in (folder / "EXECUTION_SUMMARY.md").read_text()


def test_a_name_that_is_not_utf_8(place):
    """A folder whose name is not UTF-8 is judged, named with escapes, and gets its summary."""
    folder = os.fsencode(place / "results") + b"/t\xe9_17"
    os.rename(place / "results" / "ddp_cpu_17", folder)  # noqa: PTH104
    for options in ((), ("--json",)):
        done = run(*options, os.fsdecode(folder), text=False)
        assert b"Traceback" not in done.stderr, done.stderr
        assert done.returncode == Cause.VERIFIED
        done.stdout.decode("utf-8")
    assert os.path.exists(folder + b"/EXECUTION_SUMMARY.md")  # noqa: PTH110


@pytest.mark.parametrize("target", [".", "./", "../ddp_cpu_17", "..", "/"])
def test_folders_without_a_name(place, monkeypatch, target):
    """The current folder and the root are folders like any other."""
    monkeypatch.chdir(place / "results" / "ddp_cpu_17")
    done = run(target)

    assert "Traceback" not in done.stderr
    good = target in (".", "./", "../ddp_cpu_17")
    assert done.returncode == (Cause.VERIFIED if good else Cause.BAD_INPUT), done.stdout + done.stderr
    assert not Path("/EXECUTION_SUMMARY.md").exists()


def test_a_failed_job_in_the_current_folder(place, monkeypatch):
    """What to do next names the error file beside the folder, also where that is given as a dot."""
    (place / "sacct.out").write_text(f"{HEADER}\n{COMPLETED}".replace("COMPLETED|0:0", "FAILED|1:0"))
    (place / "results" / "ddp_cpu_17.err").write_text("error\n")
    monkeypatch.chdir(place / "results" / "ddp_cpu_17")
    done = run(".")

    assert done.returncode == Cause.FAILED
    assert "results/ddp_cpu_17.err" in done.stdout


# What a terminal is given


def test_escapes_of_a_name_do_not_reach_the_terminal(place):
    """Control characters in the name of a folder are written out: on stdout, on stderr, in Markdown and in JSON."""
    folder = place / "results" / f"a{ESCAPE}b_17"
    (place / "results" / "ddp_cpu_17").rename(folder)
    twin = place / "results" / f"c{ESCAPE}_17"
    printed = [run(str(folder)), run("--json", str(folder)), run("--require", f"{ESCAPE}/x", "17")]
    twin.mkdir()
    printed += [run("17"), run(f"{ESCAPE}")]

    assert [done.returncode for done in printed] == [0, 0, 2, 2, 2]
    for done in printed:
        assert not {"\x1b", "\x07"} & {*done.stdout, *done.stderr}
    assert "\\x1b[2J" in printed[0].stdout
    assert json.loads(printed[1].stdout)["results"] == str(folder)
    assert "\x1b" not in (folder / "EXECUTION_SUMMARY.md").read_text()


def test_everything_that_comes_from_outside_is_printable():
    """Title, evidence, next step and metrics are escaped, and lone surrogates become valid UTF-8."""
    nasty = "\x1b[2J\u202e\udcff\r\n|"
    check = Check(nasty, Outcome.FAILED, nasty, Cause.WORLD_SIZE, nasty)
    report = Report(nasty, nasty, (check,), {nasty: 1.0})

    for text in (report.text(), report.markdown()):
        assert text.encode("utf-8")
        assert all(character == "\n" or character.isprintable() for character in text)
        assert len(text.splitlines()) < 30
    assert report.json().isascii()
    assert json.loads(report.json())["job"].encode("utf-8").startswith(b"\x1b[2J")


def test_a_host_that_moves_the_cursor(place):
    """A host's name, and a line that cannot be read, are shown without their escapes."""
    with (place / LOG).open("a") as log:
        log.write("rank 1/2 start host=\u202e\x9b2J pid=\x9b2J\n")
    done = run("17")

    assert done.returncode == Cause.RANK_LINE_DAMAGED
    assert "pid=\\x9b2J" in done.stdout
    assert not {"\x9b", "\u202e"} & {*done.stdout}


# Sizes


def test_a_long_line(left):
    """A line without end is passed over after its beginning; what follows in the next line is read."""
    left.write()
    with (left.results / "rank_0.log").open("w") as log:
        log.write("".join(f"\r{number} %" + " " * 70 for number in range(20_000)))  # a progress bar
        log.write("\r" + "\n".join([start(0), *map(epoch_line, (1, 2, 3)), "x" * 10**6 + " rank 0/2 end", end(0), ""]))

    assert left.judge().cause is Cause.VERIFIED, left.judge().text()


LINES = {
    "lines": "x" * 79 + "\n",
    "one line": "x" * 80,
    "rank lines": "rank 0/2 start host=node{number} backend=gloo framework=torch job=17 pid={number}\n",
    "epochs": f"epoch {{number}}/9  loss 0.5{' ' * 60}\n",
    "metrics": "{number},0.5" + "0" * 70 + "\n",
}
MEASURE = """\
import resource, sys
from srunbook import verify
from srunbook.slurm import Accounting

begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = verify.judge(verify.collect(sys.argv[1], ask=lambda job: Accounting(problem="none")))
print(report.cause.name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun)
"""
full = pytest.mark.full


@pytest.mark.parametrize(
    ("kind", "size", "most"),
    [
        ("lines", 24, 8),
        ("metrics", 24, 8),
        pytest.param("one line", 24, 8, marks=full),
        pytest.param("rank lines", 192, 96, marks=full),
        pytest.param("epochs", 192, 96, marks=full),
    ],
)
def test_memory_does_not_grow_with_a_file(tmp_path, kind, size, most):
    """A log or table of `size` MiB takes no more than `most` MiB of memory, whatever it holds."""
    folder = tmp_path / "mine_17"
    folder.mkdir()
    (tmp_path / "slurm-17.out").write_text("\n".join([start(0, 1), end(0, 1), ""]))
    with (folder / ("metrics.csv" if kind == "metrics" else "rank_0.log")).open("w") as file:
        file.write("epoch,loss\n" if kind == "metrics" else "")
        for number in range(1, size * 2**20 // 80, 2**10):
            file.write("".join(LINES[kind].format(number=number + place) for place in range(2**10)))
    done = subprocess.run([sys.executable, "-c", MEASURE, folder], capture_output=True, text=True, check=True)
    cause, kibibytes = done.stdout.split()

    assert cause != "VERIFIED"
    assert int(kibibytes) < most * 2**10


def test_more_lines_than_are_kept(monkeypatch):
    """More rank lines, or lines of epochs, than are kept are said to be too many, and not silently left out."""
    monkeypatch.setattr(_logs, "MOST_RANK_LINES", 10)
    monkeypatch.setattr(_logs, "MOST_EPOCHS", 4 * _logs.ENTRY)
    log = verify.parse_log("slurm-17.out", None, [start(0, 1)] * 11)
    epochs = verify.parse_log("slurm-17.out", None, [epoch_line(number % 10) for number in range(1, 10)])

    assert len(log.rank_lines) == 10
    assert log.damaged == ("more than 10 rank lines, so the rest was not read",)
    assert (len(epochs.epochs), epochs.dropped) == (4, 5)


def test_too_many_epochs_are_not_proven(left, monkeypatch):
    """Where the log has more lines of epochs than are kept, that all losses agree is not proven."""
    monkeypatch.setattr(_logs, "MOST_EPOCHS", 2 * _logs.ENTRY)
    (losses,) = [check for check in left.judge().checks if check.name == "losses"]

    assert losses.outcome is Outcome.NOT_PROVEN
    assert "8 numbers agree with it" in losses.evidence
