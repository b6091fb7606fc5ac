"""Start JAX on all processes, and end them together."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import socket
import sys
import threading
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from srunbook._connections import shortage
from srunbook.distributed.place import FORCED_DEVICES, DistributedError, Place, find_place, on_cpus

HEARTBEAT_SECONDS = 60
"""After so long without a sign of life from a process, JAX ends the others."""

ACCELERATORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel0")
"""Where one of these exists, JAX may use other devices than CPUs."""

OLDEST = (0, 7)
"""The oldest JAX whose `initialize` takes the arguments that `_start` gives it."""

_started: list[DistributedInfo] = []  # what the first call returned: JAX starts once


@dataclass(frozen=True)
class DistributedInfo:
    """This process's place among all. At the end of a `with` block, it waits for all processes and shuts JAX down.

    Args:
        process_id: Number of this process, from 0.
        num_processes: Number of processes.
        local_device_count: Number of JAX devices of this process.
        global_device_count: Number of JAX devices of all processes.
        coordinator_address: Address of process 0 as `host:port`, or None for a single process.
    """

    process_id: int
    num_processes: int
    local_device_count: int
    global_device_count: int
    coordinator_address: str | None

    @property
    def is_coordinator(self) -> bool:
        """Whether this is process 0, which prints and writes what is needed only once."""
        return self.process_id == 0

    def shutdown(self) -> None:
        """Wait for all processes, then close the connections between them. A second call does nothing."""
        import jax

        jax.distributed.shutdown()  # type: ignore[no-untyped-call]

    def __enter__(self) -> DistributedInfo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        together = isinstance(error, SystemExit) and error.code in (None, 0, os.EX_TEMPFAIL)  # what all do
        if self.num_processes > 1 and error is not None and not together:
            end_now(error)
        self.shutdown()


def initialize_distributed(
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    cpu_devices: int | None = None,
    timeout: float = 120.0,
) -> DistributedInfo:
    """Start JAX on all processes; call it before the first use of JAX. A second call returns the same object.

    In a step that srun started, it needs no arguments. Without Slurm or arguments, it starts a single process, so the
    same program runs on a laptop.

    The coordinator is the node of process 0: `coordinator_address`, else SLURM_COORDINATOR_ADDRESS, else
    JAX_COORDINATOR_ADDRESS, else the step's first host. Its port comes from that address, else from
    JAX_COORDINATOR_PORT, else from the ids of the job and step.

    The number of CPU devices is `cpu_devices`, else JAX_NUM_CPU_DEVICES, else the number in XLA_FLAGS, else the number
    of the task's CPUs. A process uses the GPUs in JAX_LOCAL_DEVICE_IDS, else the GPUs that it sees, or an equal share
    of them if all tasks on a node see the same GPUs.

    An exception ends its process at once, so that srun's `--kill-on-bad-exit=1` can end the others. Without that option
    JAX ends them after 60 seconds.

    Args:
        coordinator_address: Host of process 0; with `:port` if srun has not started the process.
        num_processes: Number of processes; if it is more than 1, also give `process_id`.
        process_id: Number of this process, from 0.
        cpu_devices: Number of CPU devices of this process.
        timeout: Seconds within which all processes must start; otherwise, the ones that did start end with status 1.

    Raises:
        DistributedError: An argument is wrong, variables of the step are missing, or JAX is too old.
        RuntimeError: JAX was used before.
    """
    if _started:
        return _started[0]
    import jax

    if jax.__version_info__ < OLDEST:
        raise DistributedError(f"needs JAX {'.'.join(map(str, OLDEST))} or newer, found {jax.__version__}")
    config: Any = jax.config
    platforms = config.jax_platforms or ""
    place = find_place(
        {**os.environ, "JAX_PLATFORMS": platforms},
        coordinator_address=coordinator_address,
        num_processes=num_processes,
        process_id=process_id,
        cpu_devices=cpu_devices,
    )
    if place.cpu_devices is not None:
        config.update("jax_num_cpu_devices", place.cpu_devices)
    if place.num_processes > 1:
        _check_connections(place.num_processes, config.jax_num_cpu_devices, platforms)
        _start(jax, place, timeout)
    _started.append(
        DistributedInfo(
            process_id=place.process_id,
            num_processes=place.num_processes,
            local_device_count=jax.local_device_count(),
            global_device_count=jax.device_count(),
            coordinator_address=place.coordinator_address,
        )
    )
    return _started[0]


def _start(jax: Any, place: Place, timeout: float) -> None:
    """Call JAX, which has no exception for processes that do not come, and end with a line that says what to check."""

    def give_up() -> None:
        text = (
            f"srunbook: rank {place.process_id} on {socket.gethostname()} ends: not all {place.num_processes} "
            f"processes came to {place.coordinator_address} within {timeout:g} s. If none failed, and all "
            "name this address, ask your site to open all ports between compute nodes: this one is not enough\n"
        )
        os.write(2, text.encode())
        os._exit(1)

    waiting = threading.Timer(timeout, give_up)
    waiting.daemon = True
    waiting.start()
    jax.distributed.initialize(
        coordinator_address=place.coordinator_address,
        num_processes=place.num_processes,
        process_id=place.process_id,
        local_device_ids=list(place.local_device_ids) if place.local_device_ids else None,
        cluster_detection_method="deactivate",
        initialization_timeout=math.ceil(timeout) + 60,  # JAX aborts with a page of C++ then: after our line
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
    )
    jax.devices()  # waits for the devices of all processes
    waiting.cancel()
    sys.excepthook = lambda *error: end_now(error[1])
    atexit.register(jax.distributed.shutdown)


def end_now(error: BaseException) -> None:
    """End this process at once for an exception: at JAX's last barrier it and the others would wait for each other."""
    status = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        if not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        sys.stderr.flush()
    os._exit(status & 0xFF)


def _check_connections(processes: int, devices: int, platforms: str) -> None:
    """Reject CPU devices that need more connections than a process may have."""
    if devices < 1:  # JAX does not count those of XLA_FLAGS
        devices = int(os.environ.get("XLA_FLAGS", "").partition(FORCED_DEVICES)[2].split()[0] or 1)
    reason = shortage(processes, devices)
    if reason and (on_cpus(platforms) or not (platforms or any(map(os.path.exists, ACCELERATORS)))):
        raise DistributedError(reason)
