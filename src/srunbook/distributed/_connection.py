"""One connection between two processes: JSON objects, one a line, with keepalive."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

LONGEST_LINE = 4096
"""Bytes of a message; more comes from somebody else."""

KEEPALIVE_SECONDS = 10
"""After so long without a word the system asks whether the other side is still there; three times, then it is not."""


class Connection:
    """Exchange JSON objects with one other process, one object a line.

    Args:
        connection: The connected socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", KEEPALIVE_SECONDS), ("TCP_KEEPINTVL", KEEPALIVE_SECONDS)):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if hasattr(socket, "TCP_KEEPCNT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)

    def send(self, **message: Any) -> bool:
        """Send an object of at most `LONGEST_LINE` bytes; return whether the other side was there."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """Read what has arrived.

        Returns:
            The objects that are complete, in order; none of them after the socket's timeout. None when the other side
            has closed the connection, or has sent something other than JSON objects.
        """
        try:
            data = self.socket.recv(LONGEST_LINE)
        except (TimeoutError, BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            return None
        own = all(isinstance(message, dict) for message in messages)
        return messages if data and own and len(self._rest) <= LONGEST_LINE else None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self.socket.close()
