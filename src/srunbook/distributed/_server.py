"""Process 0's side of the rendezvous: the server that takes the other processes in."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from typing import Any

from srunbook.distributed._connection import Connection
from srunbook.distributed._deadline import Deadline
from srunbook.distributed._errors import DistributedError
from srunbook.distributed._place import Place

OTHER_PORT = "choose another for all processes before srun, as in: export JAX_COORDINATOR_PORT=54321"


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
        self._strangers: list[Connection] = []
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
                return _missing(self.place, set(self.connections), self.deadline.seconds)
            for ready, _ in self._selector.select(left):
                if ready.data is None:
                    self._accept(server)
                elif error := self._hear(ready.data):
                    return error
        return None

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection = Connection(server.accept()[0])
            connection.socket.setblocking(False)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            self._strangers.append(connection)

    def _hear(self, connection: Connection) -> str | None:
        """Read what a process reports; return the error that ends the rendezvous for all, if there is one."""
        messages = connection.receive()
        if messages == []:
            return None
        if connection in self._strangers and messages:
            self._strangers.remove(connection)
            answer, for_all = self._judge(messages[0], connection)
            if answer is None:
                return None
            connection.send(error=answer)
        else:  # one that had come has gone again, or it is none of ours
            self._strangers = [other for other in self._strangers if other is not connection]
            self.connections = {rank: other for rank, other in self.connections.items() if other is not connection}
            for_all = False
        self._selector.unregister(connection.socket)
        connection.close()
        return answer if for_all else None

    def _judge(self, hello: dict[str, Any], connection: Connection) -> tuple[str | None, bool]:
        """Take a process in, or return what is wrong with it and whether that ends the rendezvous for all."""
        place = self.place
        rank, key, node = hello.get("rank"), hello.get("key"), str(hello.get("node"))
        job, _, count = place.key.partition(" ")
        if not isinstance(rank, int) or not isinstance(key, str) or key.partition(" ")[0] != job:
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
        left, seconds = hello.get("left"), hello.get("timeout")
        if isinstance(left, int | float) and isinstance(seconds, int | float) and left < self.deadline.left:
            self.deadline = Deadline(seconds, time.monotonic() + left)
        return None, False


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


def _missing(place: Place, here: set[int], timeout: float) -> str:
    """Return the message that names the ranks that did not come, and the way to start them."""
    missing = sorted(set(range(1, place.num_processes)) - here)
    named = [f"{rank} on {place.nodes[rank]}" if place.nodes else str(rank) for rank in missing]
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    variable = "SLURM_NTASKS" if place.source == "slurm" else "num_processes"
    came = place.num_processes - len(missing)
    return (
        f"{variable}={place.num_processes}, but {came} of {place.num_processes} processes came to "
        f"{place.coordinator_address} within {timeout:g} s; missing: rank {', '.join(named[:8])}{more}. Did one of "
        f"them fail before, or do fewer tasks run the program? Start as many as there are tasks, as in: srun "
        f"--ntasks={place.num_processes} --kill-on-bad-exit=1 python train.py"
    )
