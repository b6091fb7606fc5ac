"""Following what a job writes: file after file, as its user and on the cluster, so that no link leads elsewhere."""

from __future__ import annotations

import codecs
import re
import subprocess
from collections.abc import Mapping
from pathlib import PurePosixPath

from srunbook.cluster._asking import asking
from srunbook.cluster._entering import entering
from srunbook.cluster._progress import Say
from srunbook.cluster._state import State
from srunbook.slurm import ask_outputs, is_over

PIECE = 2**24
"""Bytes of a job's output that are read at once."""

HEAD = 2**16
"""Bytes of a script that are searched for its directives."""

READ = """\
[ -f "$1" ] || exit 0
exec dd if="$1" iflag=skip_bytes,count_bytes,nonblock skip="$2" count="$3" bs=64k status=none
"""
"""Prints a piece of a file; a job may have put a pipe or a device in its place, which would never end."""


class Output:
    """What a job has written to its output files.

    Elements of an array are read one after the other in the order of their numbers, so that their lines do not mix.
    Each file of several has its name above what comes from it.

    Args:
        state: The cluster.
        job: Number of the job.
        user: Whose job it is.
        follow: Is given the text as it grows.
        errors: Whether to read the files of standard error, too, where they are others.
    """

    def __init__(self, state: State, job: str, user: str, follow: Say, *, errors: bool = False) -> None:
        self.paths: dict[str, list[str]] = {}
        self._state, self._job, self._user, self._follow, self._errors = state, job, user, follow, errors
        self._offsets: dict[str, int] = {}
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._done: set[str] = set()
        self._shown = ""

    def read(self, parts: Mapping[str, str], *, last: bool) -> bool:
        """Read what is new.

        Args:
            parts: State of each part of the job, by number.
            last: Whether the job has ended, so that nothing more will come.

        Returns:
            Whether everything that is there was read.
        """
        for part, state in parts.items():
            if not is_over(state):
                self._done.discard(part)  # it was requeued
            if part not in self.paths and state not in ("PENDING", "CONFIGURING"):
                self._begin(part)
        for part in sorted(self.paths.keys() - self._done, key=_place):
            over = last or part not in parts or is_over(parts[part])
            whole = [self._read_file(part, path, over=over) for path in self.paths[part]]
            if not (all(whole) and over):
                return False
            self._done.add(part)
        return True

    def _begin(self, part: str) -> None:
        """Ask for the paths of a part; a user can only mislead whoever reads their own job, as themselves."""
        files = ask_outputs(part, asking(self._state, self._user), self._head).get(part)
        found = [files.output, *([files.errors] if self._errors else [])] if files else []
        self.paths[part] = [path for path in dict.fromkeys(found) if path != "/dev/null"]

    def _head(self, path: str) -> list[str]:
        """Return the first lines of a script of the user."""
        return self._piece(path, 0, HEAD).decode(errors="replace").splitlines()

    def _read_file(self, part: str, path: str, *, over: bool) -> bool:
        """Read what is new in a file of a part; return whether that is all that is there."""
        new = self._piece(path, self._offsets.get(path, 0))
        whole = len(new) < PIECE
        decoder = self._decoders.setdefault(path, codecs.getincrementaldecoder("utf-8")("replace"))
        text = decoder.decode(new, final=over and whole)
        titled = ("_" in part and part != self._job) or len(self.paths[part]) > 1
        if titled and (path not in self._offsets or (text and path != self._shown)):
            text = f"==> {PurePosixPath(path).name} <==\n{text}"
        self._offsets[path] = self._offsets.get(path, 0) + len(new)
        if text:
            self._shown = path
            self._follow(text)
        return whole

    def _piece(self, path: str, offset: int, size: int = PIECE) -> bytes:
        """Read a piece of a file as the user, without the user's profile, which may print, too."""
        command = ["sh", "-c", READ, "sh", path, str(offset), str(size)]
        line = entering(self._state, "login", command, user=self._user, login=False)
        return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout


def _place(part: str) -> tuple[int, ...]:
    """Return what elements and components are ordered by: `56_3` comes before `56_10`."""
    return tuple(int(number) for number in re.findall("[0-9]+", part))
