"""Let threads meet as the processes of a job do, without JAX."""

from __future__ import annotations

import threading
from typing import Any

from support.patience import PATIENCE

from srunbook.distributed import DistributedError, Place
from srunbook.distributed._deadline import Deadline
from srunbook.distributed._rendezvous import meet, release


def met(places: list[Place], timeout: float = PATIENCE) -> dict[int, Any]:
    """Return by rank what each process gets: its connections, or the message of its error."""
    results: dict[int, Any] = {}

    def call(place: Place) -> None:
        try:
            results[place.process_id] = meet(place, Deadline.after(timeout))
            release(place, results[place.process_id])
        except DistributedError as error:
            results[place.process_id] = str(error)

    threads = [threading.Thread(target=call, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def close(results: dict[int, Any]) -> None:
    """Close the connections of processes that met."""
    for connections in results.values():
        for connection in connections.values():
            connection.close()
