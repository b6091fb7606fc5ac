"""A command that runs beside a terminal, not on it: what is typed, what is printed, and how it ends."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.terminals import Terminal

pytestmark = pytest.mark.skipif(not shutil.which("setpriv"), reason="needs util-linux")

APART = """\
import os, sys
from pathlib import Path
from srunbook.cluster._terminal import is_interactive, run_apart
typed = is_interactive()
parent = ["sh", "-c", '"$@"; code=$?; [ $code -le 128 ] || kill -$((code - 128)) $$; exit $code', "sh"]
session = ["setsid", *(["--ctty"] if typed else []), "setpriv", "--pdeathsig=TERM", "--"]
sys.exit(run_apart([*parent, *session, *sys.argv[1:]], Path("/dev"), os.getuid(), interactive=typed))
"""
"""Runs a command as `nsenter` would: by a parent that waits for it and ends as it does."""

INTERRUPTED = (130, -signal.SIGINT)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """Sit at a terminal; whatever runs there leaves its modes as they were."""
    with Terminal() as found:
        before = found.modes()
        yield found
        assert found.modes() == before


def apart(*command: str) -> list[str]:
    return [sys.executable, "-c", APART, *command]


def piped(pattern: str, *command: str) -> list[str]:
    """Return a line of a shell in which the command stands for `{}`."""
    return ["bash", "-c", pattern.replace("{}", shlex.join(apart(*command)))]


def test_it_has_a_session_and_a_terminal_of_its_own(terminal):
    """The command leads its session, on another terminal of the same size."""
    code = (
        "import os; print(os.getsid(0) == os.getpid(), *(os.ttyname(fd) for fd in (0, 1, 2)), os.get_terminal_size())"
    )
    status = terminal.await_end(terminal.start(apart(sys.executable, "-c", code)))
    leads, *names = terminal.shown.split()[:4]

    assert status == 0
    assert leads == b"True"
    assert len(set(names)) == 1
    assert os.ttyname(terminal.line).encode() not in names
    assert b"columns=111, lines=33" in terminal.shown


def test_keys_and_ends_of_input_arrive(terminal):
    """What is typed is shown once and read once, and Ctrl-D ends the input."""
    process = terminal.start(apart("bash", "-c", "echo ready; cat"))
    terminal.await_text(b"ready\r\n")
    terminal.type(b"once\n")
    terminal.await_text(b"once\r\nonce\r\n")
    terminal.type(b"\x04")

    assert terminal.await_end(process) == 0
    assert terminal.shown == b"ready\r\nonce\r\nonce\r\n"


def test_a_window_that_changes_is_told(terminal):
    """A new size of the window reaches the command with its signal."""
    process = terminal.start(
        apart("bash", "-c", "trap 'stty size; exit' WINCH; echo ready; while sleep 0.1; do :; done")
    )
    terminal.await_text(b"ready")
    terminal.resize(20, 77)

    assert terminal.await_end(process) == 0
    assert b"20 77" in terminal.shown


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)],
    ids=["status", "killed", "terminated"],
)
def test_its_status_is_that_of_the_command(terminal, command, status):
    """The status is the command's own, or 128 and the signal that ended it."""
    assert terminal.await_end(terminal.start(apart("bash", "-c", command))) == status
    assert subprocess.run(apart("bash", "-c", command), check=False).returncode == status


def test_all_that_is_printed_is_shown(terminal):
    """Megabytes arrive whole, the last line too."""
    process = terminal.start(apart("bash", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo end"))

    assert terminal.await_end(process) == 0
    assert terminal.shown == b"x" * 3_000_000 + b"end\r\n"


def test_ctrl_c_ends_the_command(terminal):
    """Ctrl-C reaches the command, in a pipeline too."""
    command = ("bash", "-c", "echo ready >&2; sleep 60")
    for line in (apart(*command), piped("{} | cat", *command)):
        process = terminal.start(line)
        terminal.await_text(b"ready")
        terminal.type(b"\x03")

        assert terminal.await_end(process) in INTERRUPTED


@pytest.mark.parametrize(
    ("number", "trap"), [(signal.SIGTERM, ""), (signal.SIGHUP, "trap '' TERM HUP;")], ids=["obedient", "deaf"]
)
def test_a_signal_ends_this_side_at_once(terminal, number, trap):
    """A signal to this side ends it, whether or not the command listens, and the terminal has its modes again."""
    process = terminal.start(apart("bash", "-c", f"{trap} echo $$ ready; sleep 60"))
    terminal.await_text(b"ready")
    command = int(terminal.shown.split()[0])
    process.send_signal(number)
    status = terminal.await_end(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command, signal.SIGKILL)

    assert status == 128 + number


def test_files_and_pipes_are_passed_on_as_they_are(terminal, tmp_path):
    """In a pipeline the bytes are those that the command wrote, errors are shown, and this terminal is out of reach."""
    code = "tty; printf 'b\\na\\n'; echo wrong >&2; : 2>/dev/null </dev/tty || echo none"
    status = terminal.await_end(terminal.start(piped(f"{{}} >{tmp_path}/out", "bash", "-c", code)))

    assert status == 0
    assert (tmp_path / "out").read_bytes() == b"not a tty\nb\na\nnone\n"
    assert terminal.shown.startswith(b"wrong\r\n")


def test_input_from_a_pipe_leaves_the_screen_a_terminal(terminal):
    """Where input comes from a pipe and output goes to the terminal, the command has both."""
    status = terminal.await_end(terminal.start(piped("printf 'b\\na\\n' | {}", "bash", "-c", "sort; stty size <&1")))

    assert status == 0
    assert terminal.shown == b"a\r\nb\r\n33 111\r\n"


def test_what_is_typed_into_a_pipeline_arrives(terminal, tmp_path):
    """Lines that are typed reach a command whose output goes elsewhere, and Ctrl-D ends them."""
    process = terminal.start(piped(f"{{}} >{tmp_path}/out", "sort"))
    terminal.type(b"b\na\n\x04")

    assert terminal.await_end(process) == 0
    assert (tmp_path / "out").read_bytes() == b"a\nb\n"


PAGER = """\
import os, sys, termios, time, tty
screen = os.open("/dev/tty", os.O_RDWR)
before = termios.tcgetattr(screen)
tty.setcbreak(screen)
os.write(screen, b"pager\\n")
time.sleep(0.5)  # the keys lie there for anybody
keys = b""
while len(keys) < 20:
    keys += os.read(screen, 1)
termios.tcsetattr(screen, termios.TCSADRAIN, before)
print(keys.decode())
"""


def test_a_pager_gets_all_its_keys(terminal):
    """A program such as `less` behind the command reads its keys undisturbed."""
    process = terminal.start(piped(f"{{}} | {shlex.join([sys.executable, '-c', PAGER])}", "sleep", "60"))
    terminal.await_text(b"pager")
    terminal.type(b"abcdefghijklmnopqrst")
    terminal.await_text(b"abcdefghijklmnopqrst")
    terminal.type(b"\x03")
    terminal.await_end(process)


def test_in_the_background_it_is_not_stopped(terminal):
    """Started in the background, it touches neither the modes nor the keys, and so is not stopped."""
    line = piped("set -m; {} & wait $!", "bash", "-c", "cat; echo done")

    assert terminal.await_end(terminal.start(line)) == 0
    assert terminal.shown.startswith(b"done\r\n")


def test_bytes_pass_without_a_terminal():
    """Without a terminal anywhere, input and output are those of this process, byte for byte."""
    done = subprocess.run(apart("cat"), input=b"\x00\xff\r\n", capture_output=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"\x00\xff\r\n", b"")
