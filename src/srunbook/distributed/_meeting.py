"""The processes meet before JAX starts, and hear of each other's end afterwards.

Process 0 listens on the coordinator's port, and each other process connects to it and says who it is. When all are
there, or time is up, process 0 says so to all of them; the port is then free for JAX. The connections stay: the system
closes those of a process that dies, and so the others hear of it at once. JAX by itself would notice after 100 s.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from srunbook.distributed._deadline import Deadline
from srunbook.distributed._errors import DistributedError
from srunbook.distributed._place import Place

LONGEST_LINE = 4096
"""Bytes of a message; more comes from somebody else."""

KEEPALIVE_SECONDS = 10
"""After so long without a word the system asks whether the other side is still there; three times, then it is not."""

LAST_WORD_SECONDS = 1.0
"""After the deadline, how long a process waits for process 0 to say who is missing, once it knows that it is there."""

FAIR_SECONDS = 1.0
"""An attempt to connect that had less time, and ran out of it, says nothing about the network."""

LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
"""Where process 0 looks whether JAX listens. Numbers, for the first look-up of a name costs Python milliseconds."""

LAST_WAIT_SECONDS = 1.0
"""How long a process that ends lets the others hear why, so that they do not blame the lost connection."""

GRACE_SECONDS = 0.25
"""How long a failing process listens whether another failed before, of which its own failure is the consequence."""

OTHER_PORT = "choose another for all processes before srun, as in: export JAX_COORDINATOR_PORT=54321"


class Line:
    """A connection on which both sides send one JSON object per line.

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
        """Sends an object; returns whether the other side was there."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """What has arrived; None after the other side's end, or after something that is no message."""
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
        """Closes the connection."""
        with contextlib.suppress(OSError):
            self.socket.close()


def meet(place: Place, deadline: Deadline) -> dict[int, Line]:
    """Waits until all processes are there.

    All of them hear it from process 0 when the first of their deadlines is past.

    Args:
        place: This process's place among several.
        deadline: How long to wait.

    Returns:
        On process 0 the connection to each other process, of which all wait for `release`; on the others that to
        process 0.

    Raises:
        DistributedError: They are not all there in time; the message says who is missing, or what answers instead.
    """
    if place.process_id == 0:
        return _Gathering(place, deadline).gather()
    return {0: _report(place, deadline)}


def release(place: Place, lines: dict[int, Line]) -> None:
    """Process 0 lets the others go on; the others have nothing to do here."""
    if place.process_id == 0:
        for line in lines.values():
            line.send(go=place.port)


def release_when_listening(place: Place, lines: dict[int, Line], deadline: Deadline) -> None:
    """The same as soon as JAX listens on the port: whoever comes before that waits a second before it tries again."""

    def wait() -> None:
        while deadline.left > 0:
            if any(_listens(family, address, place.port or 0) for family, address in LOOPBACK):
                release(place, lines)
                return
            time.sleep(0.002)

    if place.process_id == 0:
        threading.Thread(target=wait, name="srunbook release", daemon=True).start()


def _listens(family: socket.AddressFamily, address: str, port: int) -> bool:
    """Whether somebody listens there."""
    with contextlib.suppress(OSError), socket.socket(family) as trial:
        trial.settimeout(1)
        trial.connect((address, port))
        return True
    return False


class _Gathering:
    """Process 0, which takes the others in.

    Args:
        place: Its place.
        deadline: How long it waits; a process that comes and has less time shortens that.
    """

    def __init__(self, place: Place, deadline: Deadline) -> None:
        self.place = place
        self.deadline = deadline
        self.lines: dict[int, Line] = {}
        self._hosts = {0: place.node}
        self._strangers: list[Line] = []
        self._selector = selectors.DefaultSelector()

    def gather(self) -> dict[int, Line]:
        """Waits for the others, and tells them what went wrong, if anything did."""
        with _server(self.place) as server, self._selector:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)
            error = self._wait(server)
        for line in self._strangers:
            line.close()
        for line in self.lines.values():
            line.socket.setblocking(True)
        if error:
            for line in self.lines.values():
                line.send(error=error)
                line.close()
            raise DistributedError(error)
        return self.lines

    def _wait(self, server: socket.socket) -> str | None:
        while len(self.lines) < self.place.num_processes - 1:
            left = self.deadline.left
            if left <= 0:
                return _missing(self.place, set(self.lines), self.deadline.seconds)
            for ready, _ in self._selector.select(left):
                if ready.data is None:
                    self._accept(server)
                elif error := self._hear(ready.data):
                    return error
        return None

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line = Line(server.accept()[0])
            line.socket.setblocking(False)
            self._selector.register(line.socket, selectors.EVENT_READ, line)
            self._strangers.append(line)

    def _hear(self, line: Line) -> str | None:
        """Reads what a process says of itself; returns what is wrong for all, if anything is."""
        messages = line.receive()
        if messages == []:
            return None
        if line in self._strangers and messages:
            self._strangers.remove(line)
            answer, for_all = self._judge(messages[0], line)
            if answer is None:
                return None
            line.send(error=answer)
        else:  # one that had come has gone again, or it is none of ours
            self._strangers = [other for other in self._strangers if other is not line]
            self.lines = {rank: other for rank, other in self.lines.items() if other is not line}
            for_all = False
        self._selector.unregister(line.socket)
        line.close()
        return answer if for_all else None

    def _judge(self, hello: dict[str, Any], line: Line) -> tuple[str | None, bool]:
        """Takes a process in, or says what is wrong with it, and whether that is wrong for all."""
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
        self.lines[rank], self._hosts[rank] = line, node
        line.send(here=True)
        left, seconds = hello.get("left"), hello.get("timeout")
        if isinstance(left, int | float) and isinstance(seconds, int | float) and left < self.deadline.left:
            self.deadline = Deadline(seconds, time.monotonic() + left)
        return None, False


def _server(place: Place) -> socket.socket:
    """A socket that listens on the coordinator's port, on all addresses, as JAX will."""
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
    """Who has not come, and what to do."""
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


def _report(place: Place, deadline: Deadline) -> Line:
    """Another process: reports to process 0 and waits for its word."""
    start = time.monotonic()
    problem = ""
    while (left := deadline.left) > 0:
        connection: socket.socket | str = _connect(place.host or "", place.port or 0, left)
        if isinstance(connection, str):
            found = connection
        else:
            line = Line(connection)
            line.send(
                key=place.key, rank=place.process_id, node=place.node, left=deadline.left, timeout=deadline.seconds
            )
            answer, found = _answer(line, deadline)
            if answer.get("go") == place.port:
                connection.settimeout(None)
                return line
            line.close()
            if refusal := answer.get("error") or answer.get("stop"):
                raise DistributedError(str(refusal))
        if not problem or left > FAIR_SECONDS or found not in OUT_OF_TIME:
            problem = found
        # A wait that grows with the time waited adds a twentieth to it at most, and spares the coordinator.
        time.sleep(max(0.0, min(deadline.left, 0.5, max(0.005, (time.monotonic() - start) / 20))))
    raise DistributedError(_unreachable(place, problem or "importing JAX took all that time", deadline.seconds))


SILENCE = "nothing answers; is there a firewall between the nodes?"
NO_NAME = "nothing answers; is the name server reachable, or is there a firewall between the nodes?"
STRANGER = "something else listens there, and is silent"
OUT_OF_TIME = (SILENCE, NO_NAME, STRANGER)


def _connect(host: str, port: int, seconds: float) -> socket.socket | str:
    """A connection, or what is in its way. A name server that does not answer costs no more than the time given."""
    found: list[socket.socket | str] = []
    given_up = threading.Event()

    def connect() -> None:
        try:
            name: Any = host.encode() if host.isascii() else host  # text loads the rules for names in other scripts
            connection = socket.create_connection((name, port), timeout=min(0.9 * seconds, 10))
        except socket.gaierror as error:
            found.append(f"the name {host!r} is not known here ({error.strerror})")
        except TimeoutError:
            found.append(SILENCE)
        except OSError as error:
            found.append("nobody listens there" if error.errno == errno.ECONNREFUSED else error.strerror or str(error))
        else:
            if given_up.is_set():
                connection.close()
            found.append(connection)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds)
    if found:
        return found[0]
    given_up.set()
    return NO_NAME


def _answer(line: Line, deadline: Deadline) -> tuple[dict[str, Any], str]:
    """What process 0 decides, or nothing where it does not in time; and what to think of that."""
    here, slack = False, 0.0
    while (left := deadline.left + slack) > 0:
        line.socket.settimeout(left)
        messages = line.receive()
        if messages is None:
            return {}, "rank 0 was there, and has ended" if here else "something else listens there"
        for message in messages:
            if "here" not in message:
                return message, "something else listens there"
            here, slack = True, LAST_WORD_SECONDS
    return {}, "rank 0 is there, but did not start JAX" if here else STRANGER


def _unreachable(place: Place, problem: str, timeout: float) -> str:
    return (
        f"rank {place.process_id} on {place.node} did not reach rank 0 at {place.coordinator_address} within "
        f"{timeout:g} s: {problem}. The address is that of the node of rank 0, and comes from coordinator_address=, "
        "SLURM_COORDINATOR_ADDRESS, JAX_COORDINATOR_ADDRESS or the step's host list, in this order. Name another, "
        f"as in: export SLURM_COORDINATOR_ADDRESS={place.nodes[0] if place.nodes else 'node1'}; srun python train.py"
    )


class Watch:
    """Hears of the end of the other processes, and ends this one when it was not a good one.

    Args:
        place: This process's place.
        lines: What `meet` gave.
        end: Ends this process; it gets a text and an exit status. Only tests give another.
    """

    def __init__(self, place: Place, lines: dict[int, Line], end: Callable[[str, int], object] | None = None) -> None:
        self.place = place
        self.lines = lines
        self.pid = os.getpid()
        self._end = end or end_process
        self._left = threading.Event()
        os.register_at_fork(after_in_child=self._close)  # a fork would keep the connections open
        threading.Thread(target=self._listen, name="srunbook watch", daemon=True).start()

    def _close(self) -> None:
        for line in self.lines.values():
            line.close()

    def _who(self, rank: int) -> str:
        return f"rank {rank} on {self.place.nodes[rank]}" if self.place.nodes else f"rank {rank}"

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, line in self.lines.items():
                selector.register(line.socket, selectors.EVENT_READ, rank)
            while selector.get_map() and not self._left.is_set():
                for ready, _ in selector.select(0.2):
                    if self._left.is_set():
                        return
                    messages = self.lines[ready.data].receive()
                    for message in [{"gone": True}] if messages is None else messages:
                        if "bye" not in message:
                            self._heard(ready.data, message)
                        selector.unregister(ready.fileobj)
                        break

    def _heard(self, rank: int, message: dict[str, Any]) -> None:
        if self._left.is_set():
            return
        status = message.get("status", 1)
        if "stop" in message:
            text = str(message["stop"])
        elif "failed" in message:
            text = f"{self._who(rank)} failed: {message['failed']}"
        else:
            text = f"{self._who(rank)} ended without a word; was it killed, or out of memory?"
        if self.place.process_id == 0:
            self._stop_all(text, status)
        self._end(f"srunbook: rank {self.place.process_id} on {self.place.node} ends: {text}", status)

    def _tell(self, **message: Any) -> None:
        for line in self.lines.values():
            line.socket.settimeout(2.0)  # the main thread may be held up, but nobody waits for it here
            line.send(**message)

    def _stop_all(self, text: str, status: int) -> None:
        """Ends the others, and lets them go first: JAX in them aborts with a page of text when it misses process 0."""
        self._tell(stop=text, status=status)
        deadline = time.monotonic() + LAST_WAIT_SECONDS
        for line in self.lines.values():
            while (left := deadline - time.monotonic()) > 0:
                line.socket.settimeout(left)
                if line.receive() is None:
                    break

    def leave(self) -> None:
        """Says goodbye: from now on this process's end is a good one."""
        if self._left.is_set() or os.getpid() != self.pid:
            return
        self._left.set()
        self._tell(bye=True)

    def fail(self, what: str, status: int = 1) -> None:
        """Ends this process and, through process 0, all others.

        Args:
            what: Why, in one line.
            status: Exit status of all of them.
        """
        if os.getpid() != self.pid or self._left.wait(GRACE_SECONDS):
            return
        self._left.set()
        if self.place.process_id == 0:
            self._stop_all(f"{self._who(0)} failed: {what[:1000]}", status)
        else:
            self._tell(failed=what[:1000], status=status)
            self.lines[0].socket.settimeout(LAST_WAIT_SECONDS)
            self.lines[0].receive()  # process 0 has told the others, or is gone itself
        self._end("", status)


def end_process(text: str, status: int) -> None:
    """Ends this process at once, also where its main thread waits in a collective that will never return."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if text:
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())
    os._exit(status)
