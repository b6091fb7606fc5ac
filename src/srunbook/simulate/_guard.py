"""Run one task, and kill everything that it has started when it ends or the simulation is gone. Run as a script.

    python -I -S _guard.py SYS_PATH PROGRAM ARGV0 [ARGV1 ...]

Standard input is a socket to the simulation. When the task has ended, the guard writes its wait status there. When the
simulation closes its end, to stop the task or because it was killed itself, the guard kills everything.

On Linux nothing escapes: the guard is a subreaper, so whatever the task starts stays below it, even after setsid() and
a double fork. The task dies with its guard (PR_SET_PDEATHSIG). macOS has neither. There a process in a session of its
own escapes if its parent ends first, and a task outlives a guard that is killed.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
EXEC_FAILED = 2
killing = _thread.allocate_lock()
"""Held while processes are killed: the guard must not end between the first and the last."""
RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux only)."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def become_task(guard: int, program: str, argv: list[str]) -> None:
    """Turn this process, a fork of the guard, into the task; never return."""
    try:
        os.setsid()
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        if LINUX:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:  # it died before the call above
                os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ["SLURM_TASK_PID"] = str(os.getpid())
        os.execv(program, argv)  # noqa: S606
    except BaseException as error:  # this process must never continue as a second guard
        os.write(2, f"srunbook simulate: cannot execute {argv[0]}: {error}\n".encode())
        os._exit(EXEC_FAILED)


def kill_descendants() -> bool:
    """Kill all processes below this one, and return whether there was one that this user may kill.

    All of them stop first: one that runs could start another that was not there when they were counted.
    """
    import psutil  # only here: importing it takes longer than everything else

    killed = False
    with killing:
        stopped: set[psutil.Process] = set()
        while children := set(psutil.Process().children(recursive=True)) - stopped:
            for process in children:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
            stopped |= children
        for process in stopped:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed = True
    return killed


def follow_simulation() -> None:
    """Wait until the simulation closes its end, then kill the task and all that it has started."""
    with contextlib.suppress(OSError):
        os.read(0, 1)
    kill_descendants()


def main() -> None:
    """Run the task to its end, say how it ended, and kill what it leaves."""
    sys.path += sys.argv[1].split(os.pathsep)  # where psutil is
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    task = os.fork()
    if task == 0:
        become_task(guard, sys.argv[2], sys.argv[3:])
    _thread.start_new_thread(follow_simulation, ())
    ended = status = 0
    while ended != task:
        ended, status = os.waitpid(-1, 0)
    with contextlib.suppress(OSError):  # the simulation may be gone
        os.write(0, str(status).encode())
    if not LINUX:
        with contextlib.suppress(OSError):
            os.killpg(task, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # raised when nothing is left
        while os.waitpid(-1, os.WNOHANG)[0] or (kill_descendants() and os.waitpid(-1, 0)[0]):
            pass
    with killing:
        os._exit(0)


if __name__ == "__main__":
    main()
