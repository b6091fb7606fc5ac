"""What the unit tests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from srunbook.distributed import Place, find_place
from srunbook.simulate._checks import derived_ports, fresh_job_id


class Processes:
    """Threads in place of the processes of a job, with a barrier that fails when one of them does not come.

    Args:
        count: Their number.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.barrier = threading.Barrier(count)

    def arguments(self, process_id: int) -> dict[str, Any]:
        """Return the arguments of `Checkpoints` for one of them."""
        return {"process_id": process_id, "num_processes": self.count, "barrier": self.barrier.wait}

    def run(self, function: Callable[[int], Any]) -> list[Any]:
        """Call a function with the number of each process, at once; return what it returned or raised."""
        results: list[Any] = [None] * self.count

        def call(process_id: int) -> None:
            try:
                results[process_id] = function(process_id)
            except Exception as error:
                results[process_id] = error

        threads = [threading.Thread(target=call, args=(number,)) for number in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.fixture(scope="session")
def processes() -> Callable[[int], Processes]:
    """Return the class that makes a number of processes."""
    return Processes


@pytest.fixture
def places() -> Iterator[Callable[[int], list[Place]]]:
    """Make the places of a number of processes on this machine, at a port that no other test or simulation has."""
    with fresh_job_id(["127.0.0.1"]) as job_id:
        port = derived_ports(job_id)[0]

        def make(count: int) -> list[Place]:
            return [
                find_place({}, coordinator_address=f"127.0.0.1:{port}", num_processes=count, process_id=number)
                for number in range(count)
            ]

        yield make
