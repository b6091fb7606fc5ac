"""The command `srunbook adapt`: what it prints and where, what it writes, and how it ends."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from srunbook.cli import main

SCRIPT = b"#!/bin/bash\n#SBATCH --partition=gpu  # EDIT: yours\n#SBATCH --time=10  # EDIT\nsrun x\n"
ADAPTED = SCRIPT.replace(b"=gpu  #", b"=batch  #")
CONFIG = "# mine\npartition: batch\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make a folder with a script and a configuration, and go there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sbatch").write_bytes(SCRIPT)
    (tmp_path / "my.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def run(*arguments: str, given: bytes | None = None) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["adapt", *arguments], input=given)


def test_standard_output_carries_the_script_alone(here):
    """Standard error says what was changed, because of which line, and what is left."""
    done = run("job.sbatch", "--config", "my.yaml")

    assert (done.exit_code, done.stdout_bytes) == (0, ADAPTED)
    assert done.stderr.splitlines() == [
        "srunbook adapt: job.sbatch:2: --partition=gpu becomes --partition=batch [partition: my.yaml:2]",
        "srunbook adapt: job.sbatch:3: left as it is: marked EDIT, and the configuration does not name it",
    ]
    assert (here / "job.sbatch").read_bytes() == SCRIPT


def test_standard_input(here):
    """A script may come from a pipe; bytes that are no text come out as they went in."""
    done = run("-", "--set", "partition=batch", given=SCRIPT + b"# \xff\r\n\xe9")

    assert (done.exit_code, done.stdout_bytes) == (0, ADAPTED + b"# \xff\r\n\xe9")


def test_nothing_to_change(here):
    """A script that fits is printed as it is."""
    (here / "job.sbatch").write_bytes(ADAPTED)
    done = run("job.sbatch", "--config", "my.yaml")

    assert (done.exit_code, done.stdout_bytes) == (0, ADAPTED)
    assert done.stderr.splitlines()[-1] == "srunbook adapt: job.sbatch: nothing to change"


def test_diff(here):
    """A unified diff is the product, and patch takes it."""
    (here / "job.sbatch").write_bytes(SCRIPT.rstrip(b"\n"))
    done = run("job.sbatch", "--config", "my.yaml", "--diff")

    assert done.stdout.splitlines()[:6] == [
        "--- job.sbatch",
        "+++ job.sbatch",
        "@@ -1,3 +1,3 @@",
        " #!/bin/bash",
        "-#SBATCH --partition=gpu  # EDIT: yours",
        "+#SBATCH --partition=batch  # EDIT: yours",
    ]
    assert (here / "job.sbatch").read_bytes() == SCRIPT.rstrip(b"\n")


def test_in_place_keeps_the_mode_and_a_link(here):
    """The file that a link leads to is written, its mode bits stay, and nothing else lies there afterwards."""
    path = here / "job.sbatch"
    path.chmod(0o750)
    (here / "link").symlink_to("job.sbatch")
    done = run("link", "--config", "my.yaml", "--in-place")

    assert (done.exit_code, done.stdout_bytes) == (0, b"")
    assert path.read_bytes() == ADAPTED
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert (here / "link").is_symlink()
    assert sorted(path.name for path in here.iterdir()) == ["job.sbatch", "link", "my.yaml"]


def test_in_place_keeps_the_owner(here):
    """Root may adapt the script of a user, whose it stays."""
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(here / "job.sbatch", 1234, 5678)
    run("job.sbatch", "--config", "my.yaml", "--in-place")
    found = (here / "job.sbatch").stat()

    assert (found.st_uid, found.st_gid, (here / "job.sbatch").read_bytes()) == (1234, 5678, ADAPTED)


def test_in_place_is_whole_or_not_at_all(here, monkeypatch):
    """Where the disk is full, the file is as it was, and the status is 1."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    done = run("job.sbatch", "--config", "my.yaml", "--in-place")

    assert done.exit_code == 1
    assert "No space left on device; the file is as it was" in done.stderr
    assert (here / "job.sbatch").read_bytes() == SCRIPT
    assert sorted(path.name for path in here.iterdir()) == ["job.sbatch", "my.yaml"]


def test_in_place_changes_nothing_that_fits(here):
    """A script that fits is not written again."""
    (here / "job.sbatch").write_bytes(ADAPTED)
    before = (here / "job.sbatch").stat()
    run("job.sbatch", "--config", "my.yaml", "--in-place")

    assert (here / "job.sbatch").stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("job.sbatch",), 2, "nothing says what to adapt to"),
        (("job.sbatch", "--set", "time_limit=00:10:00"), 2, "nothing says what to adapt to"),
        (("missing", "--config", "my.yaml"), 2, "missing: No such file or directory"),
        ((".", "--config", "my.yaml"), 2, "a folder, not a regular file"),
        (("job.sbatch", "--config", "none.yaml"), 2, "none.yaml"),
        (("job.sbatch", "--cluster", "nowhere"), 2, "'nowhere'"),
        (("job.sbatch", "--set", "partition=a b"), 2, "partition is 'a b'"),
        (("job.sbatch", "--set", "partition=a#b"), 2, "partition is 'a#b'"),
        (("job.sbatch", "--set", "partitions=a"), 2, "did you mean partition"),
        (("-", "--config", "my.yaml", "--in-place"), 2, "standard input"),
        (("job.sbatch", "--config", "my.yaml", "--in-place", "--diff"), 2, "--diff"),
        (("wrong.sbatch", "--config", "my.yaml"), 3, "wrong.sbatch:3: a quote ' is not closed"),
        (("wrong.sbatch", "--config", "my.yaml", "--in-place"), 3, "wrong.sbatch:3:"),
    ],
)
def test_what_is_refused(here, arguments, status, said):
    """The message says what was found, the status tells a wrong option from a script that is not understood."""
    wrong = SCRIPT + b"#SBATCH\n"
    (here / "wrong.sbatch").write_bytes(wrong.replace(b"--time=10", b"--time='10"))
    done = run(*arguments)

    assert (done.exit_code, done.stdout_bytes, said in done.stderr) == (status, b"", True), done.stderr
    assert (here / "job.sbatch").read_bytes() == SCRIPT


def test_standard_output_that_takes_nothing(here):
    """A full disk behind standard output ends with status 1."""
    command = [Path(sys.executable).with_name("srunbook"), "adapt", "job.sbatch", "--config", "my.yaml"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, "standard output" in done.stderr) == (1, True)
