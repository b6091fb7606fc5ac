"""Copying files between this machine and those of a cluster, on the cluster by a user's own hands."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from srunbook.cluster._configuration import USER
from srunbook.cluster._entering import entering
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._packing import Item, feed
from srunbook.cluster._pipes import connected
from srunbook.cluster._state import State
from srunbook.cluster._unpacking import FOLDER, unpack

RECEIVE = """\
refuse() { printf '%s\\n' "$*" >&2; exit 1; }
target=$1 folder=$2 name=$3
if [ -d "$target" ]; then folder=$target name=$4; fi
[ -n "$name" ] || refuse "no such folder: ${target#./}"
cd -- "$folder" 2>/dev/null || refuse "no folder ${folder#./} that $(id -un) may enter"
place=$(pwd -P)
[ "$(id -u)" != 0 ] || [ "$place" = "$(pwd -L)" ] || refuse "$(pwd -L) is a link to $place: root needs that path"
while [ "$(id -u)" = 0 ]; do # whoever owns a folder on the way could lead root anywhere, with a link or without
    unsafe=$(find "$place" -prune '(' ! -user root -o -perm /022 ! -perm -1000 ')') || exit 1
    [ -z "$unsafe" ] || refuse "$unsafe is not root's alone: copy as its user, with --user"
    [ "$place" != / ] || break
    place=$(dirname -- "$place")
done
half=$(mktemp --directory ./.copy-XXXXXXXXXX) || exit 1
trap 'rm -rf -- "$half"' EXIT
trap 'exit 1' HUP INT TERM
tar --extract --directory="$half" || exit 1
[ -e "$half/whole" ] || refuse "the copy broke off"
if [ -d "$half/copy" ] && { [ -e "./$name" ] || [ -L "./$name" ]; }; then
    refuse "$PWD/$name is there already: remove it, or copy to another name"
fi
mv --force --no-target-directory -- "$half/copy" "./$name"
"""
"""Unpacks what comes in beside where it shall be, and moves it there once all of it has come.

Its arguments are where it shall be, the folder and the name of that, and the name to take where it is a folder.
"""

SEND = """\
place=$(realpath --canonicalize-existing -- "$1") || exit 1
exec tar --create --hard-dereference --directory="$(dirname -- "$place")" "./$(basename -- "$place")"
"""
"""Packs a file or a folder; a link that is named is what it leads to, and others stay links."""

PLACE = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(.*)", re.DOTALL)


def copy(state: State, source: str, target: str, *, user: str = USER) -> None:
    """Copy a file or a folder to a machine of the cluster, or from one, whole or not at all.

    If the target is a folder, the copy lies in it under the name of the source; otherwise it gets the name of the
    target. A file replaces a file; a folder replaces nothing.

    A user of the cluster may put a link in the place of anything they own at any time. So files on the cluster are
    read and written by the user, root writes only where nobody else can, and no link is followed on this machine.
    A link that lies in a folder is copied as a link; from the cluster, only one that leads down.

    Args:
        state: The cluster.
        source: Path of what is copied, on the cluster with the name of a machine before it: `node1:/tmp/trace.json`.
            A relative path on the cluster begins in the user's home.
        target: Path of where it shall be. One of the two is on the cluster.
        user: Who reads or writes on the cluster: a user, or `root`.

    Raises:
        SpecificationError: Neither or both are on the cluster, there is no such user, machine, file or folder, or
            something in a folder cannot be copied.
        ClusterError: It could not be read or written; nothing of it is there.
    """
    here, there = PLACE.fullmatch(source), PLACE.fullmatch(target)
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
    line = entering(state, machine, ["sh", "-c", RECEIVE, "sh", *arguments], user=user, login=False)
    try:
        status, _, said = feed(line, [Item(source, "copy")], last="whole")
    except OSError as error:
        raise SpecificationError(f"{source} cannot be copied: {error}") from None
    if status != 0:
        raise ClusterError(f"{source} was not copied to {machine}:{path}: {said or 'its machine or its user ended it'}")


def _fetch(state: State, machine: str, path: str, target: Path, user: str) -> None:
    place = _in_home(path)
    folder, name = (target, PurePosixPath(place).name) if target.is_dir() else (target.parent, target.name)
    line = entering(state, machine, ["sh", "-c", SEND, "sh", place], user=user, login=False)
    with _half(folder) as (above, half), connected(line) as command:
        command.stdin.close()
        try:
            found, problem = unpack(command.stdout, half), ""
            command.stdout.read(2**20)  # padding
        except EOFError as error:
            found, problem = "", str(error)
        command.stdout.close()  # who writes on gets a signal
        if command.process.wait() != 0 or problem:
            why = command.complaint() or problem or "its machine or its user ended it"
            raise ClusterError(f"{machine}:{path} was not copied to {target}: {why}")
        name = found if name in ("", "..") else name
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(name, dir_fd=above, follow_symlinks=False)
            if stat.S_ISDIR(there.st_mode) or stat.S_ISDIR(os.stat(found, dir_fd=half, follow_symlinks=False).st_mode):
                raise ClusterError(f"{folder / name} is there already: remove it, or copy to another name")
        os.rename(found, name, src_dir_fd=half, dst_dir_fd=above)


def _in_home(path: str) -> str:
    """Return a path as seen from the user's home, which a tilde names, too.

    >>> _in_home("~/a"), _in_home("-x"), _in_home(""), _in_home("/tmp/")
    ('./a', './-x', './', '/tmp/')
    """
    if path == "~" or path.startswith("~/"):
        path = path[1:].lstrip("/")
    return path if path.startswith("/") else f"./{path}"


@contextmanager
def _half(folder: Path) -> Iterator[tuple[int, int]]:
    """Open a folder, and a new one in it that nobody else enters; remove the new one at the end, with all in it."""
    name = f".copy-{secrets.token_hex(8)}"
    try:
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SpecificationError(f"{folder} is no folder to copy into: {error.strerror}") from None
    try:
        os.mkdir(name, 0o700, dir_fd=above)
        try:
            half = os.open(name, FOLDER, dir_fd=above)
            try:
                if os.fstat(half).st_uid != os.geteuid() or any(os.scandir(half)):
                    raise ClusterError(f"{folder / name} was replaced by another user")
                yield above, half
            finally:
                os.close(half)
        finally:
            shutil.rmtree(name, ignore_errors=True, dir_fd=above)
    except OSError as error:
        raise ClusterError(f"nothing was copied into {folder}: {error}") from None
    finally:
        os.close(above)
