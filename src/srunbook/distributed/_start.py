"""Start JAX on all processes with one call."""

from __future__ import annotations

import atexit
import math
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from srunbook.distributed._arguments import checked_timeout
from srunbook.distributed._deadline import Deadline, call_within
from srunbook.distributed._devices import allow_connections, forced_devices
from srunbook.distributed._errors import DistributedError
from srunbook.distributed._info import DistributedInfo
from srunbook.distributed._monitor import Monitor
from srunbook.distributed._place import Place, find_place
from srunbook.distributed._rendezvous import meet, release_when_listening

DEFAULT_TIMEOUT = 120.0
"""Seconds that the processes wait for each other."""

JAX_SECONDS = 60
"""How much longer JAX may wait by itself."""


@dataclass
class _State:
    """The state of this interpreter, which starts JAX once."""

    info: DistributedInfo | None = None
    arguments: dict[str, Any] | None = None
    ended: bool = False


_STATE = _State()


def initialize_distributed(
    *,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    port: int | None = None,
    local_device_ids: Sequence[int] | None = None,
    cpu_devices: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> DistributedInfo:
    """Start JAX on all processes; call it before the first use of JAX.

    Inside a step that srun has started it needs no argument. Without Slurm and without arguments it starts a single
    process, so the same program runs on a laptop. A second call returns the same object.

    The coordinator is the node of process 0: `coordinator_address`, else SLURM_COORDINATOR_ADDRESS, else
    JAX_COORDINATOR_ADDRESS, else the first of the step's hosts. Its port is the one in that address, else `port`,
    else JAX_COORDINATOR_PORT, else one that follows from the ids of job and step.

    The number of CPU devices is `cpu_devices`, else JAX_NUM_CPU_DEVICES, else that in XLA_FLAGS, else the CPUs of the
    task. The GPUs of a process are those that it sees, or its even share where the tasks of a node see each other's.

    `timeout` bounds the whole call on every process: all of them raise the error when the first one's time is up.

    When a process dies or raises an exception, the others end at once, with a line on standard error that names it.

    Args:
        coordinator_address: Host of process 0, with or without `:port`.
        num_processes: Number of processes; comes with `process_id`.
        process_id: Number of this process, from 0.
        port: The coordinator's port, 1024 to 65535. A single process ignores it.
        local_device_ids: Numbers of this process's GPUs, else JAX_LOCAL_DEVICE_IDS. Ignored on CPUs.
        cpu_devices: Number of CPU devices of this process.
        timeout: Seconds that the call may take until all processes have started.

    Returns:
        What this process knows of itself and of the others, with ranks, devices and the coordinator's address.

    Raises:
        DistributedError: An argument is wrong, JAX was used before, the environment is that of half a step or of a
            heterogeneous one, or not all processes came in time. The message names the variable and the line that
            fixes it.
    """
    arguments = {name: value for name, value in locals().items() if value is not None and name != "timeout"}
    if _STATE.info is not None:
        if arguments and arguments != _STATE.arguments:
            raise DistributedError(
                f"initialize_distributed() was called before with {_STATE.arguments or 'no arguments'}, and now with "
                f"{arguments}; a process is started once: call it without arguments to get what it returned"
            )
        return _STATE.info
    deadline = Deadline.after(checked_timeout(timeout))
    import jax

    place = find_place({**os.environ, "JAX_PLATFORMS": _platforms(jax)}, **arguments)
    _check_untouched(jax)
    if place.cpu_devices is not None:
        jax.config.update("jax_num_cpu_devices", place.cpu_devices)  # type: ignore[no-untyped-call]
    monitor = None
    if place.num_processes > 1:
        monitor = _start(jax, place, deadline)
    elif place.local_device_ids:
        ids = ",".join(map(str, place.local_device_ids))
        for name in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
            jax.config.update(name, ids)  # type: ignore[no-untyped-call]
    info = DistributedInfo(
        process_id=place.process_id,
        num_processes=place.num_processes,
        local_device_count=jax.local_device_count(),
        global_device_count=jax.device_count(),
        local_devices=tuple(jax.local_devices()),
        coordinator_address=place.coordinator_address,
        source=place.source,
        _shutdown=lambda: _leave(jax, monitor),
        _fail=lambda error, status: _fail(monitor, error, status),
    )
    _STATE.info, _STATE.arguments = info, arguments
    return info


def _platforms(jax: Any) -> str:
    """Return the platforms that JAX is told to use, by JAX_PLATFORMS or by the program."""
    return jax.config.jax_platforms or ""


def _check_untouched(jax: Any) -> None:
    """Reject a JAX that has fixed its devices already."""
    if jax.distributed.is_initialized():
        raise DistributedError(
            "jax.distributed.initialize() was called before; initialize_distributed() does that itself: remove the "
            "other call, and start the program with: srun python train.py"
        )
    from jax._src import xla_bridge  # JAX has no public question for this

    if xla_bridge.backends_are_initialized():
        raise DistributedError(
            "JAX was used before initialize_distributed(), so its devices are fixed. Move the call to the top of the "
            "program, before jax.devices(), jax.random.key(), jnp.zeros() and before imports that make such constants; "
            "then SLURM_PROCID and SLURM_NTASKS count, as in: srun --ntasks=4 python train.py"
        )


def _start(jax: Any, place: Place, deadline: Deadline) -> Monitor:
    """Meet the other processes, start JAX with them, and monitor them from then on."""
    configured = jax.config.jax_num_cpu_devices
    devices = configured if configured > 0 else forced_devices(os.environ.get("XLA_FLAGS", ""))
    allow_connections(place.num_processes, devices, _platforms(jax))
    connections = meet(place, deadline)
    release_when_listening(place, connections, deadline)
    monitor = Monitor(place, connections)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        monitor.fail(_one_line(error))

    sys.excepthook = hook
    address = place.coordinator_address or ""
    who = f"rank {place.process_id} met the others at {address}, but"

    def initialize() -> None:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=place.num_processes,
            process_id=place.process_id,
            local_device_ids=list(place.local_device_ids) if place.local_device_ids else None,
            cluster_detection_method="deactivate",
            # When its own time is up, JAX ends the process, and nobody hears why: ours has to be up before.
            initialization_timeout=math.ceil(max(0, deadline.left)) + JAX_SECONDS,
        )

    try:
        call_within(deadline, initialize)
    except Exception as error:
        raise DistributedError(
            f"{who} JAX did not start: {error}. Another port may help: export JAX_COORDINATOR_PORT=54321; "
            "srun python train.py"
        ) from error
    try:
        call_within(deadline, jax.devices)
    except TimeoutError as error:
        raise DistributedError(
            f"{who} JAX has not found the devices of all: {error}. Is a node or a GPU stuck? Leave it out: "
            "srun --exclude=node1 python train.py"
        ) from error
    atexit.register(_leave, jax, monitor)
    return monitor


def _one_line(error: BaseException) -> str:
    return " ".join(traceback.format_exception_only(error)[-1].split())


def _leave(jax: Any, monitor: Monitor | None) -> None:
    """Wait for all processes, then let them go."""
    if monitor is None or _STATE.ended or os.getpid() != monitor.pid:
        return
    _STATE.ended = True
    jax.distributed.shutdown()
    monitor.leave()


def _fail(monitor: Monitor | None, error: BaseException, status: int) -> None:
    """End all processes for an exception that is on its way out of a `with` block."""
    if monitor is None:
        return
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        monitor.fail(f"it left with status {status}", status)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
        monitor.fail(_one_line(error), status)
