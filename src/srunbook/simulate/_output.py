"""Cut the output of the tasks into lines; label, keep and write them."""

from __future__ import annotations

import codecs
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from srunbook.simulate._errors import SimulationError

LONGEST_LINE = 65536
"""Characters of a line at most; a longer one comes in pieces, so that it takes no memory for all of them."""


class Lines:
    r"""Cut a stream of bytes into lines of text, and long lines into pieces.

    >>> lines = Lines()
    >>> lines.feed(b"one\ntw"), lines.feed(b"o\n"), lines.feed(b"\xc3\xa4"), lines.feed(b"")
    ([('one', True)], [('two', True)], [], [('ä', True)])
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[tuple[str, bool]]:
        """Take bytes, and return the pieces that they complete, each with whether its line ends with it.

        Args:
            data: The bytes; none mean that the stream has ended.
        """
        *lines, rest = (self._rest + self._decoder.decode(data, final=not data)).split("\n")
        pieces = [piece for line in lines for piece in _pieces(line)]
        *long, (self._rest, _) = _pieces(rest)
        pieces += [(piece, False) for piece, _ in long]
        if self._rest and not data:
            pieces.append((self._rest, True))
            self._rest = ""
        return pieces


def _pieces(line: str) -> list[tuple[str, bool]]:
    """Cut a line, each piece with whether it is the last."""
    starts = range(0, max(1, len(line)), LONGEST_LINE)
    return [(line[start : start + LONGEST_LINE], start == starts[-1]) for start in starts]


class Collector:
    """Keep, echo and write to a file what one task prints.

    Args:
        rank: The task's rank.
        label: Whether echoed lines begin with the rank.
        echo: Whether lines are written to this process's streams as they come, each piece of a long one as a line.
        keep: How many lines are kept, where each piece of a long one counts; where None all of them, and whole.
        directory: Where the file `rank-N.log` is written, or None.
    """

    def __init__(self, rank: int, *, label: bool, echo: bool, keep: int | None, directory: Path | None) -> None:
        self.lines: deque[tuple[str, str]] = deque(maxlen=keep)
        self._begun: dict[str, list[str]] | None = {"stdout": [], "stderr": []} if keep is None else None
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
        pieces = self._cutters[stream].feed(data)
        for piece, ends in pieces:
            self._keep(stream, piece, ends=ends)
        if self._echo and pieces:
            write(sys.stdout if stream == "stdout" else sys.stderr, (self._prefix + piece for piece, _ in pieces))

    def _keep(self, stream: str, piece: str, *, ends: bool) -> None:
        if self._begun is None:
            self.lines.append((stream, piece))
            return
        begun = self._begun[stream]
        begun.append(piece)
        if ends:
            self.lines.append((stream, "".join(begun)))
            begun.clear()

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
