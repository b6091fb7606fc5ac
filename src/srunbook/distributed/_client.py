"""The other processes' side of the rendezvous: the client that reports to process 0 and waits for its decision."""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import Any

from srunbook.distributed._connection import Connection, Message
from srunbook.distributed._deadline import Deadline
from srunbook.distributed._errors import DistributedError
from srunbook.distributed._place import Place

LAST_WORD_SECONDS = 1.0
"""After the deadline, how long a process waits for process 0 to say who is missing, once it knows that it is there."""

FAIR_SECONDS = 1.0
"""An attempt to connect that had less time, and ran out of it, says nothing about the network."""

SILENCE = "nothing answers; is there a firewall between the nodes?"
NO_NAME = "nothing answers; is the name server reachable, or is there a firewall between the nodes?"
STRANGER = "something else listens there, and is silent"
OUT_OF_TIME = (SILENCE, NO_NAME, STRANGER)


def report(place: Place, deadline: Deadline) -> Connection:
    """Report to process 0 and wait until it lets all processes go on.

    Args:
        place: This process's place; not that of process 0.
        deadline: How long to try.

    Returns:
        The connection to process 0, blocking.

    Raises:
        DistributedError: Process 0 refused this process or stopped all of them, or could not be reached in time.
    """
    start = time.monotonic()
    problem = ""
    while (left := deadline.left) > 0:
        opened = _connect(place.host or "", place.port or 0, left)
        if isinstance(opened, str):
            found = opened
        else:
            connection = Connection(opened)
            connection.send(
                key=place.key, rank=place.process_id, node=place.node, left=deadline.left, timeout=deadline.seconds
            )
            answer, found = _answer(connection, deadline)
            if answer.get("go") == place.port:
                opened.settimeout(None)
                return connection
            connection.close()
            refusal = answer.get("error") or answer.get("stop")
            if isinstance(refusal, str):
                raise DistributedError(refusal)
        if not problem or left > FAIR_SECONDS or found not in OUT_OF_TIME:
            problem = found
        # A wait that grows with the time waited adds a twentieth to it at most, and spares the coordinator.
        time.sleep(max(0.0, min(deadline.left, 0.5, max(0.005, (time.monotonic() - start) / 20))))
    raise DistributedError(_unreachable(place, problem or "importing JAX took all that time", deadline.seconds))


def _connect(host: str, port: int, seconds: float) -> socket.socket | str:
    """Connect to a port, and give up after `seconds` even where the name server does not answer.

    Returns:
        The connected socket, or what was in its way, for the message.
    """
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


def _answer(connection: Connection, deadline: Deadline) -> tuple[Message, str]:
    """Wait for process 0's decision; return it with a diagnosis.

    Returns:
        The message in which process 0 decides, or nothing when it does not decide in time; and what that suggests
        about whoever listens there.
    """
    here, slack = False, 0.0
    while (left := deadline.left + slack) > 0:
        connection.socket.settimeout(left)
        messages = connection.receive()
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
