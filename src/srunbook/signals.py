"""Turn a stop signal on one rank into one decision of all ranks, at the same step, with `StopSignal`."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, NoReturn

EXIT_STOPPED = 75
"""Exit status of a program that a signal has stopped after a save (EX_TEMPFAIL). Run it again to continue."""

EXIT_DO_NOT_REQUEUE = 78
"""Exit status of a program that would fail again in the same way (EX_CONFIG). Do not requeue it."""

SIGNALS = (signal.SIGUSR2, signal.SIGUSR1, signal.SIGTERM)
"""Signals that ask a program to stop; if ranks get different signals, the later one in this list counts."""


class StopSignal:
    """Note stop signals, and make all ranks stop at the same step.

    Create it in the main thread, after `torch.distributed.init_process_group()` or `jax.distributed.initialize()`; the
    latter sets its own handler for SIGTERM. The handlers only set a flag. A second signal changes nothing.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal for which all ranks stop, once `requested` has returned True."""
        self._noted = 0
        self._before: dict[signal.Signals, Any] = {number: signal.signal(number, self._note) for number in SIGNALS}

    def _note(self, number: int, _: Any) -> None:
        self._noted = self._noted or SIGNALS.index(signal.Signals(number)) + 1

    def requested(self) -> bool:
        """Return whether to save and stop now; all ranks call this after the same step and get the same answer."""
        if self.signal is None and (noted := _largest(self._noted)):
            self.signal = SIGNALS[noted - 1]
        return self.signal is not None

    def leave(self) -> NoReturn:
        """End the program after the last save; all ranks call this. From then on, they ignore the three signals.

        After SIGUSR1 and SIGUSR2, which a job requests with `--signal`, rank 0 first asks Slurm to requeue the job, and
        the others wait for it. SIGTERM comes from elsewhere: `scancel`, or a preemption that requeues by itself. A
        torch program's process group is destroyed when Python exits: create the model in a function, so that it is gone
        by then, or gloo may hang (page "The training is done, and then a rank aborts").

        Raises:
            SystemExit: Always, with the status `EXIT_STOPPED`.
        """
        self._before = dict.fromkeys(SIGNALS, signal.SIG_IGN)  # srun's SIGTERM once another rank has left, for example
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second one would end scontrol, which inherits this
        rank = torch.get_rank() if (torch := _torch()) else jax.process_index() if (jax := _jax()) else 0
        if self.signal != signal.SIGTERM and rank == 0:
            requeue_job()
        _largest(0)
        if torch:
            atexit.register(torch.destroy_process_group)
        raise SystemExit(EXIT_STOPPED)

    def __enter__(self) -> StopSignal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def requeue_job() -> bool:
    """Ask Slurm to run this job, or this member of an array, again; return whether it agreed.

    If it does not, the reason goes to standard error.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if "SLURM_ARRAY_TASK_ID" in os.environ:  # this member alone: SLURM_JOB_ID may mean the whole array
        job = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}".format_map(os.environ)
    if not job:
        print("not requeued: SLURM_JOB_ID is not set, so this is not a Slurm job", file=sys.stderr)
        return False
    try:
        subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60, check=True)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip() or f"status {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        return True
    print(f"not requeued: scontrol requeue {job}: {reason}. Submit the job again to continue", file=sys.stderr)
    return False


def _torch() -> Any:
    """Return `torch.distributed` if it is initialized, else None."""
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed and distributed.is_available() and distributed.is_initialized() else None


def _jax() -> Any:
    """Return `jax` if it runs in several processes, else None."""
    jax = sys.modules.get("jax")
    return jax if jax and jax.distributed.is_initialized() else None


def _largest(value: int) -> int:
    """Return the largest value of all ranks; all ranks call this."""
    if distributed := _torch():
        import torch

        tensor = torch.tensor([value], device="cpu" if "gloo" in distributed.get_backend() else "cuda")
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
        return int(tensor.item())
    if _jax():
        import numpy as np
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.array(value, np.int32)).max())
    return value
