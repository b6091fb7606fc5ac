"""Running a command beside this process's terminal, never on it.

Whoever holds a terminal reads what is typed there, changes its modes and, where the kernel allows TIOCSTI, types there:
what a user's command types on root's terminal, root's shell runs. So every stream of the command that would be this
terminal becomes another one, and what is typed and printed is copied. Files and pipes are passed on as they are, so
that a pipeline gets the very bytes that the command wrote.

`runuser --pty` and `script` put a terminal in the place of every stream: a pipeline would get CR LF, and stderr among
its data. `sudo` does what is done here, but is not on every machine, and obeys rules of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, cast

from srunbook.cluster._processes import children
from srunbook.cluster._signals import handling

STREAMS = ("stdin", "stdout", "stderr")
PIECE = 65536
"""Bytes that are copied at once."""

LEFT = 64
"""Pieces that are read after the end: more than a terminal holds, so whoever still writes there cannot prolong it."""

PAUSE = 0.5
"""Seconds after which to look whether another program on this terminal has ceased to ask for single keys."""


def is_interactive() -> bool:
    """Tell whether a person types to this process: input and output are terminals, and it is in their foreground."""
    return os.isatty(1) and _hears_keys()


def _hears_keys() -> bool:
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # a terminal without job control
        return True


def run_apart(command: Sequence[str], devices: Path, owner: int, *, interactive: bool) -> int:
    """Run a command with a terminal of its own in the place of this process's.

    Where a person types, the command has one terminal for all streams that are terminals here. Otherwise other
    programs may use this terminal, as in a pipeline: it keeps its modes, and the command reads what is typed from a
    pipe.

    Args:
        command: What to run. Its only child makes itself the leader of a session and, where a person types, its input
            the controlling terminal.
        devices: The folder `/dev` in which the command finds its terminal.
        owner: Number of the user whom that terminal belongs to.
        interactive: Whether a person types.

    Returns:
        The exit status of the command as a shell gives it: 128 and the signal where one ended it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        with ExitStack() as lent:  # the command's ends are closed here as soon as it has them
            desk = _furnish(stack, lent, devices, owner, interactive=interactive)
            streams: dict[str, Any] = desk.given
            process = subprocess.Popen(command, **streams, start_new_session=True)
        stack.callback(_end, process)
        stack.enter_context(handling(lambda _: desk.copy_size(), signal.SIGWINCH))
        stack.enter_context(handling(lambda number: _tell(process, number), signal.SIGINT, signal.SIGQUIT))
        stack.enter_context(handling(lambda number: _leave(process, number), signal.SIGHUP, signal.SIGTERM))
        ended = stack.enter_context(FileIO(os.pidfd_open(process.pid)))
        if interactive:
            stack.callback(_set_modes, termios.tcgetattr(0))
            tty.setraw(0, termios.TCSADRAIN)
        desk.copy_until(ended)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


@dataclass
class _Desk:
    """This process's ends of what the command is connected to.

    Args:
        interactive: Whether a person types; otherwise another program may ask for single keys meanwhile.
        shown_on: Stream of this process that shows what is printed.
        keys: Where what is typed goes, if anywhere.
        screen: Where what is printed comes from, unless it goes straight to files and pipes.
        given: Streams of the command that are not those of this process.
    """

    interactive: bool
    shown_on: int
    keys: FileIO | None = None
    screen: FileIO | None = None
    given: dict[str, int] = field(default_factory=dict)

    def copy_size(self) -> None:
        """Give the command's terminal the size of this one; the kernel tells the command."""
        if self.screen:
            size = fcntl.ioctl(self.shown_on, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.screen, termios.TIOCSWINSZ, size)

    def copy_until(self, ended: FileIO) -> None:
        """Copy what is typed and what is printed until the command has ended, or a person's terminal is gone."""
        typed = b""
        while True:
            hears = bool(self.keys and not typed and self._may_listen())
            sources: list[FileIO | int] = [ended, *([self.screen] if self.screen else []), *([0] if hears else [])]
            sinks = [self.keys] if self.keys and typed else []
            ready, free, _ = select.select(sources, sinks, [], PAUSE if self.keys and not self.interactive else None)
            if self.screen and self.screen in ready and not self._show(self.screen):
                self.screen = None
            if free:
                typed = self._pass_on(typed)
            elif 0 in ready and self._may_listen():
                typed = _read(0)
                if not typed and self.interactive:
                    return
                if not typed:
                    self._put_away_keys()
            if ended in ready:
                break
        for _ in range(LEFT):
            if not (self.screen and select.select([self.screen], [], [], 0)[0] and self._show(self.screen)):
                return

    def _may_listen(self) -> bool:
        """Tell whether what is typed is for the command, not for a program such as `less` that asks for single keys."""
        try:
            return self.interactive or bool(termios.tcgetattr(0)[3] & termios.ICANON)
        except termios.error:  # the terminal is gone, as reading from it will show
            return True

    def _show(self, screen: FileIO) -> bool:
        """Show what was printed; tell whether there was anything, which is not so once nobody can print any more."""
        text = left = _read(screen.fileno())
        while left:
            left = left[os.write(self.shown_on, left) :]
        return bool(text)

    def _pass_on(self, typed: bytes) -> bytes:
        """Give the command what was typed; return what it has no room for yet."""
        try:
            return typed[cast(FileIO, self.keys).write(typed) or 0 :]
        except OSError:  # it has closed its input
            self._put_away_keys()
            return b""

    def _put_away_keys(self) -> None:
        if self.keys and self.keys is not self.screen:
            self.keys.close()
        self.keys = None


def _furnish(stack: ExitStack, lent: ExitStack, devices: Path, owner: int, *, interactive: bool) -> _Desk:
    """Open both ends of all that the command is connected to: this process's in one stack, the command's in another."""
    names = [name for fd, name in enumerate(STREAMS) if os.isatty(fd)]
    desk = _Desk(interactive, shown_on=1 if "stdout" in names else 2)
    shown = [name for name in names if interactive or name != "stdin"]
    if shown:
        screen, line = _new_terminal(devices, owner)
        desk.screen = stack.enter_context(FileIO(screen, "r+"))
        lent.callback(os.close, line)
        desk.given = dict.fromkeys(shown, line)
        desk.copy_size()
        if interactive:
            desk.keys = desk.screen
            termios.tcsetattr(line, termios.TCSANOW, termios.tcgetattr(0))
        else:
            tty.setraw(line)  # it is this terminal that turns LF into CR LF
    if "stdin" in names and not interactive:
        theirs, ours = os.pipe()
        lent.callback(os.close, theirs)
        keys = stack.enter_context(FileIO(ours, "w"))
        desk.given["stdin"] = theirs
        desk.keys = keys if _hears_keys() else None
        if not desk.keys:
            keys.close()
    if desk.keys:
        os.set_blocking(desk.keys.fileno(), False)
    return desk


def _new_terminal(devices: Path, owner: int) -> tuple[int, int]:
    """Make a terminal that has a name where a machine's devices are; return this process's end and its user's."""
    ours = os.open(devices / "ptmx", os.O_RDWR | os.O_NOCTTY)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptsname.restype = ctypes.c_char_p
    if libc.unlockpt(ours) != 0:
        raise OSError(ctypes.get_errno(), "unlockpt")
    number = os.fsdecode(libc.ptsname(ours)).rpartition("/")[2]
    line = os.open(devices / "pts" / number, os.O_RDWR | os.O_NOCTTY)
    os.fchown(line, owner, -1)
    return ours, line


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, PIECE)
    except OSError:  # EIO: the other end is gone
        return b""


def _set_modes(modes: list[Any]) -> None:
    """Restore the modes of this terminal, and forget what has arrived meanwhile, such as its answers to the command."""
    with contextlib.suppress(termios.error):  # the terminal is gone
        termios.tcsetattr(0, termios.TCSAFLUSH, modes)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # nothing happens to one that has ended; the command gets SIGTERM with it
    process.wait()


def _tell(process: subprocess.Popen[bytes], number: int) -> None:
    """Pass a signal on to the processes that the terminal's keys would reach."""
    for leader in children(process.pid):
        with contextlib.suppress(OSError):
            os.killpg(leader, number)


def _leave(process: subprocess.Popen[bytes], number: int) -> None:
    _tell(process, number)
    sys.exit(128 + number)
