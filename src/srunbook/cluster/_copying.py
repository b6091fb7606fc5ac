"""Copy files between this machine and those of a cluster; on the cluster, a user reads and writes them."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

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
        SpecificationError: There is no such script, file or folder, or something in a folder cannot be copied.
        ClusterError: The files could not be written there.
    """
    if not script.is_file():
        raise SpecificationError(f"no such script: {script}. Give a file, as in train.sbatch")
    done = _feed(state, "login", user, "stage", [script.stem], _beside(script, extra))
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


def _feed(
    state: State, machine: str, user: str, name: str, arguments: Sequence[str], items: Iterable[tuple[Path, str]]
) -> subprocess.CompletedProcess[str]:
    """Run a shell script on an archive of files and folders, each under a name; links in it stay links."""
    line = entering(state, machine, ["sh", "-c", shell_script(name), "sh", *arguments], user=user, login=False)
    with tempfile.TemporaryFile() as stream:
        try:
            with tarfile.open(fileobj=stream, mode="w") as archive:
                for path, inside in items:
                    archive.add(path, inside, filter=_entry)
        except OSError as error:
            raise SpecificationError(f"cannot be copied: {error}") from None
        stream.seek(0)
        return subprocess.run(line, stdin=stream, capture_output=True, text=True, errors="replace", check=False)


def _entry(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave the owner of an entry to whoever unpacks it, who gives it to all to read."""
    if not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
        raise SpecificationError(f"{entry.name} is a pipe or a device: only files, folders and links can be copied")
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def copy(state: State, source: str, target: str, *, user: str = USER) -> None:
    """Copy a file or a folder to a machine of the cluster, or from one, whole or not at all.

    If the target is a folder, the copy lies in it under the name of the source; otherwise it gets the name of the
    target. A file replaces a file; a folder replaces nothing.

    The user reads and writes the files on the cluster. A link that lies in a folder is copied as a link; from the
    cluster, only if it does not lead out of the folder.

    Args:
        state: The cluster.
        source: Path of what to copy, on the cluster with the name of a machine before it: `node1:/tmp/trace.json`.
            A relative path on the cluster begins in the user's home.
        target: Path of the copy. One of the two is on the cluster.
        user: Who reads or writes on the cluster: a user, or `root`.

    Raises:
        SpecificationError: Neither or both are on the cluster, there is no such user, machine, file or folder, or
            something in a folder cannot be copied.
        ClusterError: It could not be read or written; nothing of it is there.
    """
    here, there = (re.fullmatch(r"([A-Za-z][A-Za-z0-9-]*):(.*)", path, re.DOTALL) for path in (source, target))
    if there and not here:
        _send(state, Path(source), there[1], there[2], user)
    elif here and not there:
        _fetch(state, here[1], here[2], Path(target), user)
    else:
        raise SpecificationError(
            f"copy {source} {target}: {'both are' if here else 'neither is'} on the cluster. Name a machine before "
            "one of the two, as in `copy data login:` or `copy node1:/tmp/trace.json .`"
        )


def _send(state: State, source: Path, machine: str, path: str, user: str) -> None:
    if not source.exists():
        raise SpecificationError(f"no such file or folder: {source}")
    place = _in_home(path)
    split = PurePosixPath(place)
    folder = str(split.parent) if split.is_absolute() else f"./{split.parent}"
    name = "" if place.endswith("/") or split.name == ".." else split.name
    arguments = [place, folder, name, source.resolve().name]
    done = _feed(state, machine, user, "receive", arguments, [(source.resolve(), "copy")])
    if done.returncode != 0:
        why = done.stderr.strip() or "its machine or its user ended it"
        raise ClusterError(f"{source} was not copied to {machine}:{path}: {why}")


def _fetch(state: State, machine: str, path: str, target: Path, user: str) -> None:
    place = _in_home(path)
    folder, name = (target, PurePosixPath(place).name) if target.is_dir() else (target.parent, target.name)
    if not folder.is_dir():
        raise SpecificationError(f"{folder} is no folder to copy into")
    line = entering(state, machine, ["sh", "-c", shell_script("send"), "sh", place], user=user, login=False)
    refused = f"{machine}:{path} was not copied to {target}"
    try:
        with tempfile.TemporaryDirectory(prefix=".copy-", dir=folder) as half, tempfile.TemporaryFile() as stream:
            done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.PIPE, check=False)
            if done.returncode != 0:
                why = done.stderr.decode(errors="replace").strip() or "its machine or its user ended it"
                raise ClusterError(f"{refused}: {why}")
            stream.seek(0)
            with tarfile.open(fileobj=stream) as archive:
                archive.extractall(half, filter="data")
            (copied,) = Path(half).iterdir()
            there = folder / (copied.name if name in ("", "..") else name)
            if os.path.lexists(there) and (copied.is_dir() or there.is_dir()):
                raise ClusterError(f"{there} is there already: remove it, or copy to another name")
            copied.replace(there)
    except tarfile.TarError as error:
        raise SpecificationError(f"{refused}: {error}") from None
    except OSError as error:
        raise ClusterError(f"{refused}: {error}") from None


def _in_home(path: str) -> str:
    """Return a path as seen from the user's home, which a tilde names, too.

    >>> _in_home("~/a"), _in_home("-x"), _in_home(""), _in_home("/tmp/")
    ('./a', './-x', './', '/tmp/')
    """
    if path == "~" or path.startswith("~/"):
        path = path[1:].lstrip("/")
    return path if path.startswith("/") else f"./{path}"
