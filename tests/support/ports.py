"""TCP ports that no other test on this machine takes, also not between the question and the program's bind."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

PORTS = range(10_000, 15_000)
"""Below what Linux gives to connections (32,768), what job scripts take (25,000) and what Lightning takes (15,000)."""

FOLDER = Path(tempfile.gettempdir()) / "srunbook-test-ports"

_held: list[int] = []
"""Open files whose locks this process holds until it ends."""


def hold(port: int) -> bool:
    """Lock a port until this process ends; return False when somebody has the lock or listens."""
    FOLDER.mkdir(exist_ok=True)
    file = os.open(FOLDER / str(port), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        os.close(file)
        return False
    _held.append(file)
    return True


def free_port() -> int:
    """Return a port that this process alone uses until it ends."""
    return next(port for port in random.sample(PORTS, len(PORTS)) if hold(port))
