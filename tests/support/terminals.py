"""A terminal with a command on it, as a person sits at one."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType

from support.patience import PATIENCE


class Terminal:
    """A pseudo-terminal of this process, on which commands run one after the other.

    Args:
        rows: Its height.
        columns: Its width.
    """

    def __init__(self, rows: int = 33, columns: int = 111) -> None:
        self.screen, self.line = os.openpty()
        self.shown = b""
        self.resize(rows, columns)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.screen)
        os.close(self.line)

    def resize(self, rows: int, columns: int) -> None:
        """Change its size, as one does with a window."""
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def start(self, command: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own whose controlling terminal this is."""
        streams: dict[str, object] = {"stdin": self.line, "stdout": self.line, "stderr": self.line}
        return subprocess.Popen(["setsid", "--ctty", "--wait", *command], **(streams | options))  # type: ignore[call-overload]

    def type(self, text: bytes) -> None:
        """Press keys."""
        os.write(self.screen, text)

    def await_text(self, text: bytes) -> None:
        """Wait until the screen shows a text that it has not shown before."""
        before = len(self.shown)
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown[before:]:
            assert time.monotonic() < deadline, self.shown
            self._look(0.1)

    def await_end(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end of a command while the screen shows what it prints; return its exit status."""
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None:
            assert time.monotonic() < deadline, self.shown
            self._look(0.1)
        while self._look(0):
            pass
        return process.returncode

    def _look(self, seconds: float) -> bool:
        ready = bool(select.select([self.screen], [], [], seconds)[0])
        if ready:
            self.shown += os.read(self.screen, 65536)
        return ready

    def left_to_read(self) -> bytes:
        """Return what was typed and nobody has read: the next command would take it for its own."""
        os.set_blocking(self.line, False)
        try:
            return os.read(self.line, 65536)
        except BlockingIOError:
            return b""
        finally:
            os.set_blocking(self.line, True)

    def modes(self) -> list[object]:
        """Return its modes, as termios has them."""
        return termios.tcgetattr(self.line)
