"""Accidents: code to put at the top of a program, and damage to a file that keeps its size."""

from __future__ import annotations

import signal
from pathlib import Path

SIGNAL_AT_IMPORT = """\
import builtins, os, signal
whole_import = builtins.__import__
def signalled(name, *more):
    if name == "LIBRARY":
        builtins.__import__ = whole_import
        for number in SIGNALS:
            os.kill(os.getpid(), number)
    return whole_import(name, *more)
builtins.__import__ = signalled
"""

KILL_IN_SAVE = """\
import os, shutil, signal
from pathlib import Path
saves, move = [], shutil.move
def saved(file, target=None, *_):
    saves.append(file)
    if len(saves) == NUMBER:
        if target:  # a move to another disk is a copy, and this is its first part
            Path(target).write_bytes(b"")
        os.kill(os.getpid(), signal.SIGKILL)
    elif target:
        move(file, target)
os.fsync = shutil.move = saved
"""

DISK_FULL = """\
import os
sync, syncs = os.fsync, []
def fsync(number):
    syncs.append(number)
    if len(syncs) == NUMBER:
        raise OSError(28, "No space left on device")
    sync(number)
os.fsync = fsync
"""

KILL_BEFORE_RENAME = """\
import os
own, ends, done = os.replace, {ends!r}, []
def killed(source, target):
    if str(target).endswith(ends):
        done.append(target)
        if len(done) == {number}:
            os._exit(9)
    own(source, target)
os.replace = killed
"""


def signal_at_import(library: str, *more: int) -> str:
    """Return code after which SIGUSR1, and then more signals, come while the program imports a library."""
    return SIGNAL_AT_IMPORT.replace("LIBRARY", library).replace("SIGNALS", str([int(signal.SIGUSR1), *map(int, more)]))


def kill_in_save(number: int) -> str:
    """Return code that kills the process in one of its saves, where it syncs or moves what it has written."""
    return KILL_IN_SAVE.replace("NUMBER", str(number))


def disk_full(number: int) -> str:
    """Return code after which the disk is full when the process syncs a file for the n-th time."""
    return DISK_FULL.replace("NUMBER", str(number))


def killed_before_rename(*ends: str, number: int) -> str:
    """Return code that kills the process before it renames, for the n-th time, a file whose name ends so."""
    return KILL_BEFORE_RENAME.format(ends=ends, number=number)


def flip_a_bit(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
