"""Copy a job script and what it needs into the home of a user of a cluster, who reads and writes the files there."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from srunbook.cluster._commands import entering, home_of
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._scripts import shell_script
from srunbook.cluster._sections import USER
from srunbook.cluster._state import State

BESIDE = (".py", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
"""Endings of the files that a script takes along from its own folder: programs, and what configures them."""


def stage(state: State, script: Path, *, user: str = USER, extra: Sequence[Path] = ()) -> str:
    """Copy a job script, byte for byte, and what it needs beside it into a new folder of a user's home.

    The Python and configuration files of its own folder come along; anything else is asked for. The user makes the
    folder and writes the files. A link that lies in a folder is copied as a link.

    Args:
        state: The cluster.
        script: The script on the host.
        user: Whose home.
        extra: Further files and folders that it needs beside it. Of a folder that holds the script, only what lies in
            it.

    Returns:
        The folder's path on the cluster.

    Raises:
        SpecificationError: There is no such script, file or folder.
        ClusterError: The files could not be written there.
    """
    if not script.is_file():
        raise SpecificationError(f"no such script: {script}. Give a file, as in train.sbatch")
    command = ["sh", "-c", shell_script("stage"), "sh", script.stem]
    line = entering(state, "login", command, user=user, login=False)
    with tempfile.TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for path, name in _beside(script, extra):
                archive.add(path, name)
        stream.seek(0)
        done = subprocess.run(line, stdin=stream, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ClusterError(f"{script.name} could not be copied into {home_of(user)}: {done.stderr.strip()}")
    return f"{home_of(user)}/{done.stdout.strip()}"


def _beside(script: Path, extra: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield files and folders and their names; of several with the same name the last one stays: the script."""
    folder = script.resolve().parent
    for path in sorted(folder.iterdir()):
        if path.suffix in BESIDE and path.name != script.name and (path.is_file() or path.is_symlink()):
            yield path, path.name
    for path in extra:
        if path.is_dir() and folder.is_relative_to(path.resolve()):
            yield from ((child, child.name) for child in sorted(path.iterdir()))
        elif path.exists():
            yield path.resolve(), path.resolve().name if path.is_dir() else path.name
        else:
            raise SpecificationError(f"{script.name} needs {path}, which is neither a file nor a folder")
    yield script.resolve(), script.name
