"""Processes and signals: when a process was started, whether it is part of a cluster, how this one ends in order.

A number proves nothing: the kernel gives it to another process once the first has ended.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def start_time(process: int) -> int | None:
    """Return when a process was started, in ticks since boot, or None where it is gone or a zombie."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def children(process: int) -> list[int]:
    """Return the process ids of the children of a process, none where it is gone."""
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(item) for item in text.split()]


def program_of(process: int) -> str:
    """Return the name of the program that a process runs, as `ps` shows it; empty where it is gone."""
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def identity_of(process: int, folder: Path) -> str | None:
    """Return the identity of the cluster whose `unshare` a process is, or None.

    The command of each names the folder on whose path the cluster has its file systems in memory, `space-IDENTITY`.
    The same path in another root, that of a container, is none of ours.
    """
    place = Path(f"/proc/{process}")
    try:
        words = (place / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        matches = [re.fullmatch(rf"{re.escape(str(folder))}/space-([0-9a-f]{{8}})", word) for word in words]
        if words[0] != "unshare" or not any(matches):
            return None
        ours = place.stat().st_uid == os.geteuid() and (place / "root").samefile("/")
    except OSError:
        return None
    return next(match[1] for match in matches if match) if ours else None


def processes_of(folder: Path) -> dict[int, str]:
    """Return the processes on which all of the cluster with a folder depends, each with the identity it names."""
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    identities = {number: identity_of(number, folder) for number in numbers}
    return {number: identity for number, identity in identities.items() if identity}


def kill(process: int) -> None:
    """Kill a process; one that has ended meanwhile needs no signal."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@contextmanager
def handling(action: Callable[[int], None], *numbers: int) -> Iterator[None]:
    """Handle signals, but those that are ignored, as under nohup; only the main thread can."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, lambda number, _: action(number)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as an exception does, so that what was begun is undone.

    A handler that is already there stays.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with handling(lambda number: sys.exit(128 + number), *numbers):
        yield
