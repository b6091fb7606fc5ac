"""A command of the cluster with pipes to its input and from its output."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast


@dataclass(frozen=True)
class Connected:
    """A command that runs, and this process's ends of its pipes.

    Args:
        process: The command.
        complaints: File that its standard error goes to; a pipe that nobody reads would stop it.
    """

    process: subprocess.Popen[bytes]
    complaints: IO[bytes]

    @property
    def stdin(self) -> IO[bytes]:
        """Return its input."""
        return cast("IO[bytes]", self.process.stdin)

    @property
    def stdout(self) -> IO[bytes]:
        """Return its output."""
        return cast("IO[bytes]", self.process.stdout)

    def complaint(self) -> str:
        """Return what it wrote to its standard error so far."""
        self.complaints.seek(0)
        return self.complaints.read(2**16).decode(errors="replace").strip()


@contextmanager
def connected(line: Sequence[str]) -> Iterator[Connected]:
    """Run a command with pipes; what goes wrong here ends it."""
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints) as process,
    ):
        try:
            yield Connected(process, complaints)
        except BaseException:
            process.kill()
            raise
