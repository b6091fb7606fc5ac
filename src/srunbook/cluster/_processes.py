"""Processes of this machine: when one was started, and whether it is part of a cluster.

A number proves nothing: the kernel gives it to another process once the first has ended.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

NS_GET_PARENT = 0xB702
"""Request of ioctl for the namespace that one is nested in, see ioctl_ns(2)."""


def boot_identity() -> str:
    """Return the identity of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


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


def identity_of(process: int, folder: Path) -> str | None:
    """Return the identity of the cluster whose `unshare` a process is, or None.

    The command of each names the folder on whose path the cluster has its file systems in memory, `space-IDENTITY`.

    Args:
        process: Its number.
        folder: The folder of the cluster. The same path in another root, that of a container, is none of ours.
    """
    place = Path(f"/proc/{process}")
    try:
        words = (place / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        matches = [re.fullmatch(rf"{re.escape(str(folder))}/space-([0-9a-f]{{8}})", word) for word in words]
        if words[0] != "unshare" or not any(matches):
            return None
        ours = _status(process, "Uid")[1] == str(os.geteuid()) and (place / "root").samefile("/")
    except OSError:
        return None
    return next(match[1] for match in matches if match) if ours else None


def processes_of(folder: Path) -> dict[int, str]:
    """Return the processes on which all of the cluster with a folder depends, each with the identity it names."""
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    found = {number: identity_of(number, folder) for number in numbers}
    return {number: identity for number, identity in found.items() if identity}


def is_first_within(process: int, supervisor: int) -> bool:
    """Tell whether a process is the first of a process namespace nested in that which a supervisor has made."""
    if start_time(process) is None:
        return False
    try:
        with Path(f"/proc/{process}/ns/pid").open("rb") as own:
            parent = fcntl.ioctl(own, NS_GET_PARENT)
        try:
            made = Path(f"/proc/{supervisor}/ns/pid_for_children").stat()
            return os.path.samestat(os.fstat(parent), made) and _status(process, "NSpid")[-1] == "1"
        finally:
            os.close(parent)
    except OSError:
        return False


def _status(process: int, field: str) -> list[str]:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    match = re.search(rf"^{field}:(.*)$", text, re.MULTILINE)
    return match[1].split() if match else [""]


def kill(process: int, is_ours: Callable[[int], bool]) -> None:
    """Kill a process, if what has that number now is ours; one that has ended meanwhile needs no signal."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        if is_ours(process):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
