"""The rendezvous: all processes find each other before JAX starts.

Process 0 listens on the coordinator's port, and each other process connects to it and says who it is. When all are
there, or time is up, process 0 says so to all of them; the port is then free for JAX. The connections stay, and
`_monitor` reads them: the system closes those of a process that dies, so the others hear of it at once. JAX by itself
would notice after 100 s.

Each message is a JSON object on a line of its own:

- `key`, `rank`, `node`, `left`, `timeout`: a process reports; it has `left` of its `timeout` seconds.
- `here`: process 0 has taken it in. `error`: process 0 has not, or not all came; the text says why.
- `go`: all are there, and JAX listens on this port.
- `bye`, `failed`, `stop`: a process leaves; it failed, and why; all end, and why (with their exit `status`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from srunbook.distributed._client import report
from srunbook.distributed._connection import Connection
from srunbook.distributed._deadline import Deadline
from srunbook.distributed._place import Place
from srunbook.distributed._server import Server

LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
"""Where process 0 looks whether JAX listens. Numbers, for the first look-up of a name costs Python milliseconds."""


def meet(place: Place, deadline: Deadline) -> dict[int, Connection]:
    """Wait until all processes are there.

    When the first of their deadlines passes, process 0 tells all of them who is missing.

    Args:
        place: This process's place among several.
        deadline: How long to wait.

    Returns:
        On process 0 the connection to each other process by rank; those wait for `release`. On the others the
        connection to process 0.

    Raises:
        DistributedError: They are not all there in time; the message says who is missing, or what answers instead.
    """
    if place.process_id == 0:
        return Server(place, deadline).gather()
    return {0: report(place, deadline)}


def release(place: Place, connections: dict[int, Connection]) -> None:
    """Let the other processes go on. Only process 0 has anything to send; on the others this does nothing."""
    if place.process_id == 0:
        for connection in connections.values():
            connection.send(go=place.port)


def release_when_listening(place: Place, connections: dict[int, Connection], deadline: Deadline) -> None:
    """Release the others as soon as JAX listens on the port: who connects earlier waits a second before it retries."""

    def wait() -> None:
        while deadline.left > 0:
            if any(_listens(family, address, place.port or 0) for family, address in LOOPBACK):
                release(place, connections)
                return
            time.sleep(0.002)

    if place.process_id == 0:
        threading.Thread(target=wait, name="srunbook release", daemon=True).start()


def _listens(family: socket.AddressFamily, address: str, port: int) -> bool:
    """Return whether somebody listens there."""
    with contextlib.suppress(OSError), socket.socket(family) as trial:
        trial.settimeout(1)
        trial.connect((address, port))
        return True
    return False
