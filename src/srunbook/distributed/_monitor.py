"""What becomes of a run when one of its processes ends: the others hear of it and end as well."""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable

from srunbook.distributed._connection import Connection, Message
from srunbook.distributed._place import Place

LAST_WAIT_SECONDS = 1.0
"""How long a process that ends lets the others hear why, so that they do not blame the lost connection."""

GRACE_SECONDS = 0.25
"""How long a failing process listens whether another failed before, of which its own failure is the consequence."""

GONE: Message = {"gone": True}
"""How the monitor writes the end of a connection; nobody sends it."""


class Monitor:
    """Listen for the end of the other processes, and end this one when one of them failed.

    Args:
        place: This process's place.
        connections: The connections that `meet` returned.
        end: Ends this process, given a text and an exit status. Only tests pass another one.
    """

    def __init__(
        self, place: Place, connections: dict[int, Connection], end: Callable[[str, int], object] | None = None
    ) -> None:
        self.place = place
        self.connections = connections
        self.pid = os.getpid()
        self._end = end or end_process
        self._left = threading.Event()
        os.register_at_fork(after_in_child=self._close)  # a fork would keep the connections open
        threading.Thread(target=self._listen, name="srunbook monitor", daemon=True).start()

    def _close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    def _who(self, rank: int) -> str:
        return f"rank {rank} on {self.place.nodes[rank]}" if self.place.nodes else f"rank {rank}"

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, connection in self.connections.items():
                selector.register(connection.socket, selectors.EVENT_READ, rank)
            while selector.get_map() and not self._left.is_set():
                for ready, _ in selector.select(0.2):
                    if self._left.is_set():
                        return
                    messages = self.connections[ready.data].receive()
                    for message in [GONE] if messages is None else messages:
                        if "bye" not in message:
                            self._heard(ready.data, message)
                        selector.unregister(ready.fileobj)
                        break

    def _heard(self, rank: int, message: Message) -> None:
        if self._left.is_set():
            return
        told = message.get("status")
        status = told if isinstance(told, int) and 0 < told < 256 else 1
        if "stop" in message:
            text = str(message["stop"])
        elif "failed" in message:
            text = f"{self._who(rank)} failed: {message['failed']}"
        else:
            text = f"{self._who(rank)} ended without a word; was it killed, or out of memory?"
        if self.place.process_id == 0:
            self._stop_all(text, status)
        self._end(f"srunbook: rank {self.place.process_id} on {self.place.node} ends: {text}", status)

    def _tell(self, **message: str | int) -> None:
        for connection in self.connections.values():
            connection.socket.settimeout(2.0)  # the main thread may be held up, but nobody waits for it here
            connection.send(**message)

    def _stop_all(self, text: str, status: int) -> None:
        """End the others, and let them go first: JAX in them aborts with a page of text when it misses process 0."""
        self._tell(stop=text, status=status)
        deadline = time.monotonic() + LAST_WAIT_SECONDS
        for connection in self.connections.values():
            while (left := deadline - time.monotonic()) > 0:
                connection.socket.settimeout(left)
                if connection.receive() is None:
                    break

    def leave(self) -> None:
        """Say goodbye, so that this process may end without ending the others."""
        if self._left.is_set() or os.getpid() != self.pid:
            return
        self._left.set()
        self._tell(bye=True)

    def fail(self, what: str, status: int = 1) -> None:
        """End this process and, through process 0, all others.

        Args:
            what: The reason, on one line.
            status: Exit status of all of them.
        """
        if os.getpid() != self.pid or self._left.wait(GRACE_SECONDS):
            return
        self._left.set()
        if self.place.process_id == 0:
            self._stop_all(f"{self._who(0)} failed: {what}", status)
        else:
            self._tell(failed=what, status=status)
            self.connections[0].socket.settimeout(LAST_WAIT_SECONDS)
            self.connections[0].receive()  # process 0 has told the others, or is gone itself
        self._end("", status)


def end_process(text: str, status: int) -> None:
    """End this process at once, even while its main thread waits in a collective that will never return.

    Args:
        text: What to write to standard error before; nothing when empty.
        status: Its exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if text:
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode(errors="backslashreplace"))
    os._exit(status)
