"""Turn a stop signal on one rank into one decision of all ranks, at the same step."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any, NoReturn

EXIT_STOPPED = 75
"""Exit status of a training that was stopped by a signal and has saved: run it again to go on (EX_TEMPFAIL)."""

EXIT_DO_NOT_REQUEUE = 78
"""Exit status of a training that would fail again in the same way: do not requeue it (EX_CONFIG)."""

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
REQUEUE_SECONDS = 60


class StopSignal:
    """Note stop signals, and make all ranks stop at the same step.

    Make it after `torch.distributed.init_process_group()` or `jax.distributed.initialize()`, in the main thread. The
    handlers only set a flag: they do not save, do not raise, and call no handler that was there before. A second
    signal changes nothing.

    In a JAX program of several processes, JAX itself watches for SIGTERM and tells all processes. That is left as it
    is: SIGUSR1 and SIGUSR2 are noted and passed on as SIGTERM.

    Args:
        signals: The signals that ask the training to stop, some of SIGTERM, SIGUSR1 and SIGUSR2.
        every: Number of steps between two agreements of the ranks. More saves time and delays the stop.

    Raises:
        ValueError: `every` is less than 1, or a signal is none of these three.
        RuntimeError: The calling thread is not the main thread.
    """

    def __init__(self, signals: Iterable[signal.Signals] = SIGNALS, *, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every={every}: needs 1 or more, for example every=10")
        signals = tuple(signals)
        if not set(signals) <= set(SIGNALS):
            raise ValueError(f"signals={signals}: they are some of {', '.join(known.name for known in SIGNALS)}")
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("StopSignal installs signal handlers, which only the main thread can do")
        self.every = every
        self._agreed: signal.Signals | None = None
        self._noted: signal.Signals | None = None
        self._with_jax = _jax_processes() > 1
        self._jax_watches = self._with_jax and _jax_watches_sigterm()
        self._before: dict[signal.Signals, Any] = {}
        for number in signals:
            if not (self._jax_watches and number == signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._noted is None:
            self._noted = signal.Signals(number)
            if self._jax_watches:
                os.kill(os.getpid(), signal.SIGTERM)

    @property
    def signal(self) -> signal.Signals | None:
        """The signal for which all ranks stop, once `requested` has returned True. SIGTERM takes precedence."""
        return self._agreed

    def requested(self, step: int) -> bool:
        """Return whether to save and stop now; all ranks call this at each step and get the same answer.

        Args:
            step: The step that was just finished, the same on all ranks.

        Raises:
            RuntimeError: JAX was initialized after this object was made, and has taken SIGTERM from it.
        """
        if self._agreed is not None:
            return True
        if self._with_jax != (_jax_processes() > 1):
            raise RuntimeError("make StopSignal after jax.distributed.initialize(), which takes SIGTERM for itself")
        if step % self.every:
            return False
        if self._jax_watches:
            from jax.experimental import multihost_utils

            if not multihost_utils.reached_preemption_sync_point(step // self.every):
                return False
            # Only those that got another signal noted one: the rest is JAX's, which does not say on which rank.
            self._agreed = _most_urgent(self._noted) or signal.SIGTERM
        else:
            self._agreed = _most_urgent(self._noted)
        return self._agreed is not None

    def leave(self, *, requeue: bool | None = None) -> NoReturn:
        """End the program after the last save; all ranks call this.

        Rank 0 first asks Slurm to requeue the job, and the others wait for it, so that no rank ends and takes rank 0
        with it before. If Slurm refuses, its answer goes to standard error.

        A torch program's process group is destroyed as Python ends. Have the model in a function, not in a module: it
        has to be gone by then, or gloo may hang or abort (page "The training is done, and then a rank aborts").

        Args:
            requeue: Whether to requeue. By default after SIGUSR1 and SIGUSR2, which a job requests with `--signal`, but
                not after SIGTERM, which others send: `scancel`, or a preemption that requeues by itself.

        Raises:
            SystemExit: Always, with the status `EXIT_STOPPED`.
        """
        wanted = self._agreed != signal.SIGTERM if requeue is None else requeue
        if wanted and _process_id() == 0:
            requeue_job()
        _largest(0)
        if _torch_distributed():
            atexit.register(_destroy_process_group)
        raise SystemExit(EXIT_STOPPED)

    def close(self) -> None:
        """Restore the handlers that were installed before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __enter__(self) -> StopSignal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def requeue_job() -> bool:
    """Ask Slurm to run this job again; one rank calls this.

    Returns:
        Whether Slurm agreed. If it did not, the reason goes to standard error.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        print("not requeued: SLURM_JOB_ID is not set, so this is no Slurm job", file=sys.stderr, flush=True)
        return False
    try:
        done = subprocess.run(
            ["scontrol", "requeue", job], capture_output=True, text=True, timeout=REQUEUE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"not requeued: scontrol requeue {job}: {error}", file=sys.stderr, flush=True)
        return False
    if done.returncode != 0:
        reason = done.stderr.strip() or f"status {done.returncode}"
        print(f"not requeued: scontrol requeue {job}: {reason}", file=sys.stderr, flush=True)
    return done.returncode == 0


_PRECEDENCE: tuple[signal.Signals | None, ...] = (None, signal.SIGUSR2, signal.SIGUSR1, signal.SIGTERM)


def _most_urgent(noted: signal.Signals | None) -> signal.Signals | None:
    """Return the signal that takes precedence among those that the ranks have noted; all ranks call this."""
    return _PRECEDENCE[_largest(_PRECEDENCE.index(noted))]


def _torch_distributed() -> Any:
    """Return `torch.distributed` if it is initialized for several ranks, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def _destroy_process_group() -> None:
    """End the threads of gloo: a thread that still has a tensor to free aborts the process as Python cleans up.

    Not before the program has unwound. A model in `DistributedDataParallel` holds on to the process group. If it is
    the last to do so, it waits for these threads with Python's lock in its hands, and they may be waiting for the lock.
    """
    if distributed := _torch_distributed():
        distributed.destroy_process_group()


def _jax_processes() -> int:
    jax = sys.modules.get("jax")
    return int(jax.process_count()) if jax is not None and jax.distributed.is_initialized() else 1


def _jax_watches_sigterm() -> bool:
    config: Any = sys.modules["jax"].config
    return bool(config.jax_enable_preemption_service)


def _process_id() -> int:
    if distributed := _torch_distributed():
        return int(distributed.get_rank())
    return int(sys.modules["jax"].process_index()) if _jax_processes() > 1 else 0


def _largest(value: int) -> int:
    """Return the largest value of all ranks; all ranks call this."""
    if distributed := _torch_distributed():
        import torch

        device = "cpu" if "gloo" in distributed.get_backend() else "cuda"
        tensor = torch.tensor([value], device=device)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
        return int(tensor.item())
    if _jax_processes() > 1:
        import numpy as np
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.array(value, np.int32)).max())
    return value
