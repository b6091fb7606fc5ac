"""Check what a caller passes, and reject everything else with an example of what works."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from srunbook.distributed._errors import DistributedError

LONGEST_TIMEOUT = 86400
"""Seconds of a day; nobody waits longer, and the clocks of the system take no number that is much larger."""


def whole(name: str, value: Any, allowed: str, example: str) -> int:
    """Return a whole number, of Python or NumPy, as an `int`; the caller checks its range.

    Raises:
        DistributedError: The value is not a whole number; the message is made of `allowed` and `example`.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise DistributedError(f"{name}={value!r}: {allowed}, as in {example}")
    return int(value)


def checked_timeout(value: Any) -> float:
    """Return a timeout in seconds.

    Raises:
        DistributedError: It is not a number, not positive, or longer than a day.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not 0 < value <= LONGEST_TIMEOUT:
        raise DistributedError(
            f"timeout={value!r}: it is a number of seconds, more than 0 and at most {LONGEST_TIMEOUT}, as in "
            "initialize_distributed(timeout=120); in a job script: srun python train.py"
        )
    return float(value)


def checked_cpu_devices(value: Any) -> int | None:
    """Return the number of CPU devices to make, or None.

    Raises:
        DistributedError: It is not a whole number from 1.
    """
    if value is None:
        return None
    allowed, example = "a process has a whole number of CPU devices, 1 or more", "cpu_devices=4"
    count = whole("cpu_devices", value, allowed, example)
    if count < 1:
        raise DistributedError(f"cpu_devices={value!r}: {allowed}, as in {example}")
    return count


def checked_address(value: Any) -> str | None:
    """Return the coordinator's address, or None.

    Raises:
        DistributedError: It is not text. What the text says is checked by `find_place`.
    """
    if value is not None and not isinstance(value, str):
        raise DistributedError(
            f"coordinator_address={value!r}: it is the name of a host, with a port or without, as in "
            "coordinator_address='node1:54321'"
        )
    return value


def checked_process(process_id: Any, num_processes: Any) -> tuple[int, int]:
    """Return the rank of this process and the number of all, given as arguments.

    Raises:
        DistributedError: One of them is missing, not a whole number, or the rank lies outside the world.
    """
    example = "initialize_distributed(coordinator_address='node1:54321', num_processes=4, process_id=0)"
    if num_processes is not None:
        num_processes = whole("num_processes", num_processes, "it is a whole number, 1 or more", example)
    if process_id is not None:
        process_id = whole("process_id", process_id, "it is a whole number from 0", example)
    if num_processes == 1 and process_id is None:
        process_id = 0
    if num_processes is None or process_id is None:
        missing = "process_id" if process_id is None else "num_processes"
        raise DistributedError(f"{missing} is not given; num_processes and process_id come together, as in {example}")
    if not 0 <= process_id < num_processes:
        raise DistributedError(
            f"process_id={process_id}, num_processes={num_processes}: process ids are 0 to num_processes - 1, "
            f"as in {example}"
        )
    return process_id, num_processes


def checked_port(value: Any, where: str) -> int:
    """Return a port, given as text or number.

    Raises:
        DistributedError: It is not a whole number from 1024 to 65535.
    """
    text = value if isinstance(value, str) else str(whole(where, value, PORTS_ALLOWED, "port=54321"))
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1024 <= int(text) <= 65535:
        raise DistributedError(
            f"the port in {where} is {value!r}; ports are 1024 to 65535, as in: "
            "export JAX_COORDINATOR_PORT=54321; srun python train.py"
        )
    return int(text)


PORTS_ALLOWED = "a port is a whole number, 1024 to 65535"


def checked_device_ids(value: Any) -> tuple[int, ...]:
    """Return the numbers of GPUs that were given as an argument.

    Raises:
        DistributedError: They are not a list of different whole numbers from 0.
    """
    allowed, example = "it is a list of different numbers from 0", "local_device_ids=[0, 1]"
    ids: tuple[int, ...] = ()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        ids = tuple(whole("local_device_ids", one, allowed, example) for one in value)
    if not ids or len(set(ids)) < len(ids) or min(ids) < 0:
        raise DistributedError(f"local_device_ids={value!r}: {allowed}, as in {example}")
    return ids
