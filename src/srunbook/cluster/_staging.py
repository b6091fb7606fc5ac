"""Bringing a job script into the home of a user, by that user's own hands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from srunbook.cluster._configuration import USER
from srunbook.cluster._entering import entering, home_of
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._packing import Item, feed
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


BESIDE = (".py", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
"""Endings of the files that a script takes along from its own folder: programs, and what configures them."""


def stage(state: State, script: Path, *, user: str = USER, extra: Sequence[Path] = ()) -> str:
    """Copy a job script, byte for byte, and what it needs beside it into a new folder of a user's home.

    The Python and configuration files of its own folder come along; anything else is asked for. The home is the
    user's, who may put a link in the place of anything in it at any time. So the user makes the folder and writes the
    files, on the login node: a link leads to nothing but what is the user's anyway. A link that lies in a folder is
    copied as a link.

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
    items = list(_items(script, extra))
    line = entering(state, "login", ["sh", "-c", RECEIVE, "sh", script.stem], user=user, login=False)
    try:
        status, output, said = feed(line, items)
    except OSError as error:
        raise SpecificationError(f"{script.name} needs what cannot be copied: {error}") from None
    name = output.decode(errors="replace").removesuffix("\n")
    if status != 0 or not re.fullmatch(rf"{re.escape(script.stem)}(-\d+)?", name):
        raise ClusterError(f"{script.name} could not be copied into {home_of(user)}: {said or 'the folder is gone'}")
    return f"{home_of(user)}/{name}"


def _items(script: Path, extra: Sequence[Path]) -> Iterator[Item]:
    """Yield what is to be copied; of several with the same name the last one stays, which is the script."""
    folder = script.resolve().parent
    for path in sorted(folder.iterdir()):
        if path.suffix in BESIDE and path.name != script.name and (path.is_file() or path.is_symlink()):
            yield Item(path, path.name, named=False)
    for path in extra:
        if path.is_dir():
            yield Item(path, "" if folder.is_relative_to(path.resolve()) else path.resolve().name)
        elif path.is_file():
            yield Item(path, path.name)
        else:
            raise SpecificationError(f"{script.name} needs {path}, which is neither a file nor a folder")
    yield Item(script, script.name)
