"""Accidents at a named call: code to put at the top of a program."""

SIGNAL_AT_IMPORT = """\
import builtins, os, signal
whole_import = builtins.__import__
def signalled(name, *more):
    if name == "LIBRARY":
        builtins.__import__ = whole_import
        os.kill(os.getpid(), signal.SIGUSR1)
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


def signal_at_import(library: str) -> str:
    """Return code after which SIGUSR1 comes while the program imports a library by this name."""
    return SIGNAL_AT_IMPORT.replace("LIBRARY", library)


def kill_in_save(number: int) -> str:
    """Return code that kills the process in one of its saves, where it syncs or moves what it has written."""
    return KILL_IN_SAVE.replace("NUMBER", str(number))
