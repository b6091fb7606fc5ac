"""One connection between two processes: flat JSON objects, one a line, with keepalive.

Anybody on the network can connect, so a line is read as a stranger's: what is too long, nested, or no number that we
would send is refused whole, and texts become short and printable before anything else sees them.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TypeAlias

Message: TypeAlias = dict[str, str | int | float]

LONGEST_TEXT = 2000
"""Characters of a text in a message; longer ones are clipped."""

LONGEST_LINE = 1 << 15
"""Bytes of a message, of which JSON needs up to 12 for a character; more comes from somebody else."""

LARGEST_NUMBER = 1e15
"""Numbers in messages are ranks, ports, seconds and exit statuses: none is as large."""

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

    def send(self, **message: str | int | float | None) -> bool:
        """Send an object, with its texts clipped; return whether the other side was there."""
        clipped = {name: value[:LONGEST_TEXT] if isinstance(value, str) else value for name, value in message.items()}
        try:
            self.socket.sendall(json.dumps(clipped).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[Message] | None:
        """Read what has arrived.

        Returns:
            The objects that are complete, in order; none of them after the socket's timeout. None when the other side
            has closed the connection, or has sent something other than flat JSON objects.
        """
        try:
            data = self.socket.recv(4096)
        except (TimeoutError, BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [message for line in lines if (message := parsed(line)) is not None]
        return messages if data and len(messages) == len(lines) and len(self._rest) <= LONGEST_LINE else None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self.socket.close()


def parsed(line: bytes) -> Message | None:
    r"""Read a message, a flat object of texts and finite numbers; return None for everything else.

    >>> parsed(b'{"rank": 1, "node": "n\\u001b1"}'), parsed(b"[" * 4000), parsed(b'{"left": 1e999}')
    ({'rank': 1, 'node': 'n\\x1b1'}, None, None)
    """
    try:
        message = json.loads(line) if len(line) <= LONGEST_LINE else None
    except (ValueError, RecursionError):  # the latter for brackets in brackets
        return None
    if not isinstance(message, dict):
        return None
    for value in message.values():
        # A comparison, because it is false for NaN, and because huge integers do not convert to floats.
        if not isinstance(value, str) and not (isinstance(value, int | float) and abs(value) <= LARGEST_NUMBER):
            return None
    return {name: printable(value) if isinstance(value, str) else value for name, value in message.items()}


def printable(text: str) -> str:
    """Return a text, clipped, with escapes for what a terminal would act upon or no encoding takes."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)[:LONGEST_TEXT]
