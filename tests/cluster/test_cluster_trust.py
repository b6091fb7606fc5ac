"""What a user of the cluster can do to the root who runs it: nothing."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.terminals import Terminal

from srunbook import cluster
from srunbook.cluster import faults
from srunbook.cluster._entering import entering
from srunbook.cluster._processes import children

COMMAND = [sys.executable, "-c", "from srunbook.cli import main; main(prog_name='srunbook')", "cluster"]
LEGACY = Path("/proc/sys/dev/tty/legacy_tiocsti")


@pytest.fixture(autouse=True)
def tidy(slurm: cluster.State) -> Iterator[None]:
    """Leave nothing in the home and on the small disk that a later test could stumble over."""
    yield
    cluster.capture(slurm, ["bash", "-c", "rm -rf ~/trusted* ~/.bash_profile"])
    cluster.capture(slurm, ["bash", "-c", "rm -rf /scratch/*"], user=None)


@pytest.mark.parametrize("target", ["/nowhere/at/all", "/etc", "trusted"])
def test_a_name_that_a_link_has_is_taken(slurm, tmp_path, target):
    """Whatever has the name of the new folder, another one is made beside it."""
    script = tmp_path / "trusted.sbatch"
    script.write_text("#!/bin/bash\necho here\n")
    (tmp_path / "gone.py").symlink_to("nowhere")
    (tmp_path / "folder.py").mkdir()
    cluster.capture(slurm, ["ln", "-s", target, "trusted"])
    folder = cluster.stage(slurm, script)
    listed = cluster.capture(slurm, ["stat", "--format=%n %U %a", ".", "trusted.sbatch"], folder=folder)

    assert folder == "/home/alice/trusted-2"
    assert listed.stdout == ". alice 755\ntrusted.sbatch alice 644\n"


@pytest.fixture
def injection() -> Iterator[None]:
    """Let unprivileged processes use TIOCSTI, as kernels before 6.2 do, and those whose owner wants it."""
    before = LEGACY.read_text() if LEGACY.exists() else ""
    if before:
        LEGACY.write_text("1")
    yield
    if before:
        LEGACY.write_text(before)


PROBE = """\
import fcntl, json, os, termios
seen = {"session": os.getsid(0) == os.getpid()}
for name in (0, 1, 2, "/dev/tty"):
    try:
        fd = os.open(name, os.O_RDWR) if name == "/dev/tty" else name
        stat = os.fstat(fd)
        seen[str(name)] = [stat.st_dev, stat.st_ino]
        for letter in "injected\\n":
            fcntl.ioctl(fd, termios.TIOCSTI, letter.encode())
    except OSError as error:
        seen[f"{name} refused"] = error.strerror
open(os.path.expanduser("~/trusted.json"), "w").write(json.dumps(seen))
"""


def probed(slurm: cluster.State) -> dict:
    text = cluster.capture(slurm, ["cat", f"/home/{cluster.USER}/trusted.json"], user=None).stdout
    print(text)
    return json.loads(text)


def test_a_user_types_nothing_into_the_terminal_of_root(slurm, injection):
    """A command of `exec` has a session, a terminal and descriptors of its own, so it cannot type for root."""
    with Terminal() as terminal:
        arguments = ["exec", "--name", slurm.specification.name, "--", "python3", "-c", PROBE]
        status = terminal.await_end(terminal.start([*COMMAND, *arguments]))
        typed = terminal.left_to_read()
        ours = os.fstat(terminal.line)
    seen = probed(slurm)

    assert status == 0
    assert b"injected" not in typed
    assert [ours.st_dev, ours.st_ino] not in [seen["0"], seen["1"], seen["2"]]
    assert seen["session"]
    assert "/dev/tty" in seen


BUILD = """\
import sys
from srunbook.cluster import _roots
with open(sys.argv[1], "wb") as log:
    _roots._contained(["sh", "-c", ": </dev/tty"], log)
"""


def test_what_is_installed_has_no_terminal(tmp_path):
    """While a root is made, no script of a package finds the terminal of the one who makes it."""
    with Terminal() as terminal:
        status = terminal.await_end(terminal.start([sys.executable, "-c", BUILD, str(tmp_path / "log")]))

    assert status == 1
    assert "/dev/tty" in (tmp_path / "log").read_text()


def test_a_terminal_of_the_cluster_is_as_good_as_this_one(slurm):
    """A shell has a terminal with a name, this window's size and job control, and an end that its status tells of."""
    with Terminal() as terminal:
        before = terminal.modes()
        shell = terminal.start([*COMMAND, "shell", "--name", slurm.specification.name])
        terminal.await_text(b"$ ")
        terminal.type(b"tty; stty size; exec 3<$(tty) && echo it opens\n")
        terminal.await_text(b"\nit opens")
        terminal.type(b"bash -c 'echo runs; sleep infinity'\n")
        terminal.await_text(b"runs\r\n")
        terminal.type(b"\x1a")
        terminal.await_text(b"Stopped")
        terminal.type(b"exit 3\nexit 3\n")  # the first one warns of the stopped job
        statuses = [terminal.await_end(shell)]
        killed = ["exec", "--name", slurm.specification.name, "bash", "-c", "kill -9 $$"]
        statuses.append(terminal.await_end(terminal.start([*COMMAND, *killed])))
        after = terminal.modes()

    assert b"\r/dev/pts/" in terminal.shown
    assert b"\n33 111\r" in terminal.shown
    assert (statuses, after) == ([3, 137], before)


def test_nor_does_what_a_submission_starts(slurm, injection, tmp_path):
    """The profile of a user, which runs while root submits, finds no terminal, and what it prints misleads nobody."""
    script = tmp_path / "trusted.sbatch"
    script.write_text("#!/bin/bash\necho from the job\n")
    profile = f"echo 1; echo /etc\n[ -e trusted.json ] || python3 -c '{PROBE}'\n"
    cluster.capture(slurm, ["bash", "-c", 'printf %s "$1" >~/.bash_profile', "bash", profile])
    with Terminal() as terminal:
        status = terminal.await_end(
            terminal.start([*COMMAND, "submit", "--name", slurm.specification.name, str(script)])
        )
        typed = terminal.left_to_read()
    seen = probed(slurm)

    assert b"injected" not in typed
    assert "/dev/tty" not in seen
    assert status == 0
    assert b"from the job" in terminal.shown


def test_a_program_of_a_user_is_never_run_by_root(slurm, monkeypatch):
    """Where the caller's PATH names a folder that a user may write to, root still runs the system's programs."""
    script = "mkdir -p /scratch/bin; printf '#!/bin/sh\\nid -u >>/scratch/who\\n' >/scratch/bin/setpriv; "
    script += "chmod +x /scratch/bin/setpriv; for other in setsid env sh; do cp /scratch/bin/{setpriv,$other}; done"
    cluster.capture(slurm, ["bash", "-c", script])
    monkeypatch.setenv("PATH", f"/scratch/bin:{os.environ['PATH']}")
    said = cluster.capture(slurm, ["id", "-un"])
    monkeypatch.undo()

    assert cluster.capture(slurm, ["cat", "/scratch/who"]).stdout == ""
    assert said.stdout == "alice\n"


def test_a_user_gets_nothing_else_of_root(slurm, tmp_path, monkeypatch):
    """No variable, no descriptor beyond the three, no folder and no mask of the caller reaches a user's process."""
    monkeypatch.setenv("TREASURE", "root's")
    mask = os.umask(0)
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        said = cluster.capture(slurm, ["bash", "-c", "env; ls /proc/self/fd | wc -l; pwd; umask"]).stdout
    finally:
        os.umask(mask)
        os.close(leaked)

    assert "TREASURE" not in said
    assert said.splitlines()[-3:] == ["4", "/home/alice", "0022"]


KEYS = {"x86_64": (248, 250), "aarch64": (217, 219)}
READ_KEY = """\
import ctypes, sys
buffer = ctypes.create_string_buffer(99)
print(ctypes.CDLL(None).syscall(int(sys.argv[1]), 11, int(sys.argv[2]), buffer, 99), buffer.value.decode())
"""


@pytest.mark.skipif(os.uname().machine not in KEYS, reason="its numbers of system calls are not known here")
def test_the_keys_of_root_stay_with_root(slurm):
    """What root keeps in its session's keyring, such as a Kerberos ticket, no user reads."""
    add, keyctl = KEYS[os.uname().machine]
    key = ctypes.CDLL(None).syscall(add, b"user", b"srunbook-test", b"treasure", 8, -3)
    if key < 0:
        pytest.skip("this kernel keeps no keys")
    read = ["python3", "-c", READ_KEY, str(keyctl), str(key)]
    try:
        said = cluster.capture(slurm, read).stdout
    finally:
        ctypes.CDLL(None).syscall(keyctl, 3, key)

    assert said == "-1 \n"


def test_filling_the_disk_follows_no_link(slurm, as_user, healed):
    """A user who knows the name of the file that fills the disk cannot have another one overwritten."""
    as_user("bash", "-c", "cd /scratch; echo private >trusted.txt; ln -s trusted.txt .filler", user=cluster.SECOND_USER)
    faults.fill_disk(slurm, 512)
    room = as_user("df", "--output=avail", "/scratch").split()[-1]

    assert as_user("cat", "/scratch/trusted.txt") == "private\n"
    assert room == "512"


def test_output_that_never_ends_holds_up_nobody(slurm, tmp_path):
    """A job that puts a pipe in the place of its output, which nobody writes to, is followed to its end."""
    script = tmp_path / "trusted.sbatch"
    script.write_text("#!/bin/bash\nmv slurm-*.out aside; mkfifo slurm-$SLURM_JOB_ID.out; sleep 1\n")
    job = cluster.submit(slurm, script)

    assert job.state == "COMPLETED"


def test_output_that_is_no_text_ends_no_submission(slurm, tmp_path):
    """Bytes that are no text are shown as such, and a letter that comes in two pieces is whole."""
    script = tmp_path / "trusted.sbatch"
    script.write_text("#!/bin/bash\nprintf 'a\\377b\\303'; sleep 1; printf '\\251\\n'\n")
    shown: list[str] = []
    job = cluster.submit(slurm, script, follow=shown.append)

    assert job.output == "".join(shown) == "a\N{REPLACEMENT CHARACTER}b\N{LATIN SMALL LETTER E WITH ACUTE}\n"


def test_a_number_that_another_process_has_now_is_no_machine(slurm, until):
    """Where the kernel has given the number of a dead machine to a process of a user, root does not follow it."""
    sleeper = subprocess.Popen(
        entering(slurm, "login", ["sleep", "infinity"], user=cluster.USER), stdin=subprocess.DEVNULL
    )
    try:
        (number,) = until(lambda: children(sleeper.pid))
        mistaken = replace(slurm, machines={**slurm.machines, "node1": number})
        with pytest.raises(cluster.ClusterError, match="node1 is dead: boot it with `srunbook cluster fault heal"):
            cluster.capture(mistaken, ["hostname"], user=None, machine="node1")
    finally:
        sleeper.kill()
        sleeper.wait()
