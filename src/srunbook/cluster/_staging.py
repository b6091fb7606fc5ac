"""Bringing a job script into the home of a user, by that user's own hands."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from srunbook.cluster._configuration import USER
from srunbook.cluster._entering import entering
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._state import State

RECEIVE = """\
name=$1 number=1
until mkdir -- "$name" 2>/dev/null; do
    [ -e "$name" ] || [ -L "$name" ] || exec mkdir -- "$name" # the name is free, so let it say what is wrong
    number=$((number + 1))
    name=$1-$number
done
tar --extract --directory="./$name" && printf '%s\\n' "$name"
"""
"""Makes a new folder, unpacks what comes in, and prints the name: the one that is asked for, or one with a number."""


def stage(state: State, script: Path, *, user: str = USER, extra: Sequence[Path] = ()) -> str:
    """Copy a job script, byte for byte, and the Python files beside it into a new folder of a user's home.

    The home is the user's, who may put a link in the place of anything in it at any time. So the user makes the
    folder and writes the files, on the login node: a link leads to nothing but what is the user's anyway.

    Args:
        state: The cluster.
        script: The script on the host.
        user: Whose home.
        extra: Further files that it needs beside it.

    Returns:
        The folder's path on the cluster.

    Raises:
        SpecificationError: There is no such script or file.
        ClusterError: The files could not be written there.
    """
    if not script.is_file():
        raise SpecificationError(f"no such script: {script}. Give a file, as in train.sbatch")
    if missing := [path for path in extra if not path.is_file()]:
        raise SpecificationError(f"{script.name} needs {missing[0]}, which is not a file")
    beside = [path for path in sorted(script.resolve().parent.glob("*.py")) if path.is_file()]
    line = entering(state, "login", ["sh", "-c", RECEIVE, "sh", script.stem], user=user, login=False)
    result = subprocess.run(line, input=_packed([script, *beside, *extra]), capture_output=True, check=False)
    name = result.stdout.decode(errors="replace").removesuffix("\n")
    if result.returncode != 0 or not re.fullmatch(rf"{re.escape(script.stem)}(-\d+)?", name):
        said = result.stderr.decode(errors="replace").strip()
        raise ClusterError(f"{script.name} could not be copied into /home/{user}: {said or 'the folder is gone'}")
    return f"/home/{user}/{name}"


def _packed(paths: Iterable[Path]) -> bytes:
    """Return an archive of files without their folders; of several with the same name, the last one."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, path in {path.name: path for path in paths}.items():
            text = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(text), 0o644, time.time()
            archive.addfile(entry, io.BytesIO(text))
    return stream.getvalue()
