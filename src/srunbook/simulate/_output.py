"""Cut the output of the tasks into lines; label, keep and write them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from srunbook.simulate._errors import SimulationError


class Lines:
    r"""Cut a stream of bytes into lines of text.

    >>> lines = Lines()
    >>> lines.feed(b"one\ntw"), lines.feed(b"o\n"), lines.feed(b"\xc3\xa4"), lines.rest()
    (['one'], ['two'], [], ['ä'])
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, data: bytes) -> list[str]:
        """Take bytes and return the lines that they complete."""
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = b"".join([*self._pending, complete[0]])
            self._pending = []
        if rest:
            self._pending.append(rest)
        return [line.decode(errors="replace") for line in complete]

    def rest(self) -> list[str]:
        """Return the last line, if it was not completed."""
        pending, self._pending = self._pending, []
        return [b"".join(pending).decode(errors="replace")] if pending else []


class Collector:
    """Keep, echo and write to a file what one task prints.

    Args:
        rank: The task's rank.
        label: Whether echoed lines begin with the rank.
        echo: Whether lines are written to this process's streams as they come.
        keep: How many lines are kept; all of them where None.
        directory: Where the file `rank-N.log` is written, or None.
    """

    def __init__(self, rank: int, *, label: bool, echo: bool, keep: int | None, directory: Path | None) -> None:
        self.lines: deque[tuple[str, str]] = deque(maxlen=keep)
        self._prefix = f"[{rank}] " if label else ""
        self._echo = echo
        self._cutters = {"stdout": Lines(), "stderr": Lines()}
        self._file: IO[bytes] | None = (directory / f"rank-{rank}.log").open("wb", buffering=0) if directory else None

    def take(self, stream: str, data: bytes) -> None:
        """Take bytes from the stream `stdout` or `stderr` of the task; no bytes mean that the stream has ended.

        Raises:
            OSError: The file or the echo cannot be written.
        """
        if data and self._file:
            self._file.write(data)
        cutter = self._cutters[stream]
        lines = cutter.feed(data) if data else cutter.rest()
        self.lines.extend((stream, line) for line in lines)
        if self._echo and lines:
            write(sys.stdout if stream == "stdout" else sys.stderr, (self._prefix + line for line in lines))

    def finish(self) -> None:
        """End both streams, and take a last line without its newline."""
        for stream in self._cutters:
            self.take(stream, b"")

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
            self._file = None


def write(target: IO[str] | None, lines: Iterable[str]) -> None:
    """Write lines at once, with a replacement for what the target cannot encode. A closed stream is None."""
    if target is None:
        return
    text = "".join(f"{line}\n" for line in lines)
    encoding = getattr(target, "encoding", None)
    if encoding:
        text = text.encode(encoding, "replace").decode(encoding)
    target.write(text)
    target.flush()


def prepare_directory(directory: Path) -> None:
    """Make the directory of the log files, and remove the logs of an earlier simulation from it.

    Raises:
        SimulationError: It is a file, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for log in directory.glob("rank-*.log"):
            if log.stem.removeprefix("rank-").isdigit():
                log.unlink()
        probe = directory / ".srunbook-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SimulationError(
            f"cannot write logs into {str(directory)!r}: {error.strerror}; give a directory that can be made or "
            "written, as in --output-dir logs"
        ) from None
