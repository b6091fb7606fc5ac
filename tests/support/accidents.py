"""Accidents: code to put at the top of a program, and damage to a file that keeps its size."""

from __future__ import annotations

import signal
from pathlib import Path


def signal_at_import(library: str, *more: int) -> str:
    """Return code after which SIGUSR1, and then more signals, come while the program imports a library."""
    return f"""\
import builtins, os, signal
whole_import = builtins.__import__
def signalled(name, *more):
    if name == "{library}":
        builtins.__import__ = whole_import
        for number in {[int(signal.SIGUSR1), *map(int, more)]}:
            os.kill(os.getpid(), number)
    return whole_import(name, *more)
builtins.__import__ = signalled
"""


def kill_in_save(number: int) -> str:
    """Return code that kills the process in one of its saves, where it syncs or moves what it has written."""
    return f"""\
import os, shutil, signal
from pathlib import Path
saves, move = [], shutil.move
def saved(file, target=None, *_):
    saves.append(file)
    if len(saves) == {number}:
        if target:  # a move to another disk is a copy, and this is its first part
            Path(target).write_bytes(b"")
        os.kill(os.getpid(), signal.SIGKILL)
    elif target:
        move(file, target)
os.fsync = shutil.move = saved
"""


def disk_full(number: int) -> str:
    """Return code after which the disk is full when the process syncs a file for the n-th time."""
    return f"""\
import os
sync, syncs = os.fsync, []
def fsync(number):
    syncs.append(number)
    if len(syncs) == {number}:
        raise OSError(28, "No space left on device")
    sync(number)
os.fsync = fsync
"""


def killed_before_rename(*ends: str, number: int) -> str:
    """Return code that kills the process before it renames, for the n-th time, a file whose name ends so."""
    return f"""\
import os
own, done = os.replace, []
def killed(source, target):
    if str(target).endswith({ends!r}):
        done.append(target)
        if len(done) == {number}:
            os._exit(9)
    own(source, target)
os.replace = killed
"""


def flip_a_bit(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
