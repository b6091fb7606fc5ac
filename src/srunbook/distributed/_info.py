"""What `initialize_distributed` returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class DistributedInfo:
    """This process, and all of them together.

    As a context manager it shuts JAX down at the end of the block, when all processes have come there. An exception
    ends all processes at once, with the traceback on standard error of the process that raised it.

    Args:
        process_id: Number of this process, from 0.
        num_processes: Number of processes.
        local_device_count: Number of JAX devices of this process.
        global_device_count: Number of JAX devices of all processes.
        local_devices: The JAX devices of this process.
        coordinator_address: Where process 0 was met, as `host:port`, or None for a single process.
        source: Where this comes from: `slurm` (a step that srun started), `arguments`, or `single`.
    """

    process_id: int
    num_processes: int
    local_device_count: int
    global_device_count: int
    local_devices: tuple[jax.Device, ...]
    coordinator_address: str | None
    source: str
    _shutdown: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    _fail: Callable[[BaseException, int], None] = field(default=lambda *_: None, repr=False, compare=False)

    @property
    def is_coordinator(self) -> bool:
        """Whether this is process 0, which prints and writes what is wanted once."""
        return self.process_id == 0

    def shutdown(self) -> None:
        """Wait for all processes, then close the connections between them. A second call does nothing."""
        self._shutdown()

    def __enter__(self) -> DistributedInfo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (status := exit_status(error)):
            self._fail(error, status)
            return
        self._shutdown()


def exit_status(error: BaseException) -> int:
    """Return the exit status with which an exception ends all processes; 0 where each may end by itself.

    `SystemExit` without a status, and with 75 (stopped, run me again), is what all processes do together.

    >>> exit_status(ValueError("no data")), exit_status(SystemExit("no data")), exit_status(SystemExit(0))
    (1, 1, 0)
    >>> exit_status(SystemExit(-1)), exit_status(SystemExit(2**40 + 3))
    (255, 3)
    """
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None or error.code == os.EX_TEMPFAIL:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1  # as the system would cut it
