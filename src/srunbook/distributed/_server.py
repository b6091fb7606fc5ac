"""Process 0's side of the rendezvous: the server that takes the other processes in."""

from __future__ import annotations

import errno
import math
import os
import resource
import selectors
import socket
import time
from typing import Any

from srunbook.distributed._connection import Connection, Message
from srunbook.distributed._deadline import Deadline
from srunbook.distributed._errors import DistributedError
from srunbook.distributed._place import Place

OTHER_PORT = "choose another for all processes before srun, as in: export JAX_COORDINATOR_PORT=54321"

FIRST_WORD_SECONDS = 5.0
"""How long a connection may take to report; a process does so at once, and connects again if it was cut off."""

MOST_STRANGERS = 64
"""So many connections beyond those of the missing processes may be open and silent; then the oldest is closed."""

FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What the system says when it has no file for another connection."""

REPORT = {"key": (str,), "rank": (int,), "node": (str,), "left": (int, float), "timeout": (int, float)}
"""What a process reports, and of which types."""


class Server:
    """Take the other processes in, as process 0.

    Args:
        place: Its place.
        deadline: How long to wait; a process that arrives with less time left shortens it.
    """

    def __init__(self, place: Place, deadline: Deadline) -> None:
        self.place = place
        self.deadline = deadline
        self.connections: dict[int, Connection] = {}
        self._hosts = {0: place.node}
        self._strangers: dict[Connection, float] = {}  # until when each has to report; the oldest comes first
        self._turned_away = 0
        self._full = ""
        self._selector = selectors.DefaultSelector()

    def gather(self) -> dict[int, Connection]:
        """Wait for the others, and tell them what went wrong, if anything did.

        Returns:
            The connection to each other process, by rank, open and blocking.

        Raises:
            DistributedError: The port cannot be used, not all came in time, or two of them contradict each other.
        """
        with _server(self.place) as server, self._selector:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)
            error = self._wait(server)
        for connection in self._strangers:
            connection.close()
        for connection in self.connections.values():
            connection.socket.setblocking(True)
        if error:
            for connection in self.connections.values():
                connection.send(error=error)
                connection.close()
            raise DistributedError(error)
        return self.connections

    def _wait(self, server: socket.socket) -> str | None:
        while len(self.connections) < self.place.num_processes - 1:
            left = self.deadline.left
            if left <= 0:
                return _missing(self.place, set(self.connections), self.deadline.seconds, self._others())
            silent = min(self._strangers.values(), default=math.inf) - time.monotonic()
            for ready, _ in self._selector.select(max(0.0, min(left, silent))):
                if ready.data is None:
                    self._accept(server)
                elif error := self._hear(ready.data):
                    return error
            self._make_room()
        return None

    def _accept(self, server: socket.socket) -> None:
        try:
            connection = Connection(server.accept()[0])
        except OSError as error:
            self._full = os.strerror(error.errno) if error.errno in FULL else ""
            return
        connection.socket.setblocking(False)
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self._strangers[connection] = time.monotonic() + FIRST_WORD_SECONDS
        self._full = ""

    def _make_room(self) -> None:
        """Close the connections that have not reported in time, and the oldest where there are too many of them."""
        missing = self.place.num_processes - 1 - len(self.connections)
        full = bool(self._full)
        for connection, until in list(self._strangers.items()):
            if until > time.monotonic() and len(self._strangers) <= MOST_STRANGERS + missing and not full:
                return
            self._close(connection)
            self._turned_away += 1
            full = False
        if full:  # only other parts of the program can close files
            time.sleep(0.05)

    def _close(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        self._selector.unregister(connection.socket)
        connection.close()

    def _hear(self, connection: Connection) -> str | None:
        """Read what a process reports; return the error that ends the rendezvous for all, if there is one."""
        messages = connection.receive()
        if messages == []:
            return None
        answer, for_all = None, False
        if connection not in self._strangers:  # a process that was here has gone, and may come again
            for rank in [rank for rank, other in self.connections.items() if other is connection]:
                del self.connections[rank], self._hosts[rank]
        else:
            if messages:
                answer, for_all = self._judge(messages[0], connection)
                if answer is None:
                    del self._strangers[connection]
                    return None
                connection.send(error=answer)
            self._turned_away += 1
        self._close(connection)
        return answer if for_all else None

    def _others(self) -> str:
        """Say what else came to the port, and what the system did not let in."""
        count = self._turned_away + len(self._strangers)
        text = ""
        if count:
            came = "1 other connection" if count == 1 else f"{count} other connections"
            text += (
                f" Besides, {came} to port {self.place.port} did not report as a rank of this program: does something "
                "scan the nodes, or use this port?"
            )
        if self._full:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            text += f" Rank 0 could not accept more connections ({self._full}): it may open {limit} files (ulimit -n)."
        return text

    def _judge(self, hello: Message, connection: Connection) -> tuple[str | None, bool]:
        """Take a process in, or return what is wrong with it and whether that ends the rendezvous for all."""
        place = self.place
        job, _, count = place.key.partition(" ")
        key, rank, node, left, seconds = (_of_type(hello.get(name), types) for name, types in REPORT.items())
        if None in (key, rank, node, left, seconds) or key.partition(" ")[0] != job:
            return f"port {place.port} of {place.node} belongs to another program ({job}); {OTHER_PORT}", False
        if key != place.key:
            return (
                f"rank {rank} on {node} counts {key.partition(' ')[2]} processes and rank 0 on {place.node} counts "
                f"{count}; give all of them the same num_processes, or let Slurm tell them: srun python train.py"
            ), True
        if rank in self._hosts or not 0 < rank < place.num_processes:
            return (
                f"two processes say that they are rank {rank}, on {self._hosts.get(rank)} and on {node}; "
                "each needs its own process_id, as Slurm gives them: srun python train.py"
            ), True
        self.connections[rank], self._hosts[rank] = connection, node
        connection.send(here=True)
        if left < self.deadline.left:
            self.deadline = Deadline(seconds, time.monotonic() + left)
        return None, False


def _of_type(value: Any, types: tuple[type, ...]) -> Any:
    """Return a value that is of one of these types exactly, for True is an int, too; None for any other."""
    return value if type(value) in types else None


def _server(place: Place) -> socket.socket:
    """Listen on the coordinator's port on all addresses, as JAX will.

    Raises:
        DistributedError: The port is in use, or the system does not allow it.
    """
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            ("", place.port or 0),
            family=socket.AF_INET6 if both else socket.AF_INET,
            dualstack_ipv6=both,
            backlog=min(4096, max(128, place.num_processes)),
        )
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise DistributedError(
            f"port {place.port} of {place.node}, on which rank 0 waits for the others, {reason}; {OTHER_PORT}"
        ) from error


def _missing(place: Place, here: set[int], timeout: float, others: str) -> str:
    """Return the message that names the ranks that did not come, who came instead, and the way to start them."""
    missing = sorted(set(range(1, place.num_processes)) - here)
    named = [f"{rank} on {place.nodes[rank]}" if place.nodes else str(rank) for rank in missing]
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    variable = "SLURM_NTASKS" if place.source == "slurm" else "num_processes"
    came = place.num_processes - len(missing)
    return (
        f"{variable}={place.num_processes}, but {came} of {place.num_processes} processes came to "
        f"{place.coordinator_address} within {timeout:g} s; missing: rank {', '.join(named[:8])}{more}.{others} "
        f"Did one of them fail before, or do fewer tasks run the program? Start as many as there are tasks, as in: "
        f"srun --ntasks={place.num_processes} --kill-on-bad-exit=1 python train.py"
    )
