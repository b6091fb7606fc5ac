"""Supervise the tasks of a simulation. Run as a script; standard library only, single-threaded.

This process reads one line of JSON from standard input, starts the tasks, and writes one line of JSON to standard
output for each event. It has one duty: when it ends, nothing that the tasks started is left. It kills everything

- when all tasks have ended, one has failed, or time is up;
- when standard input closes or its parent is gone: the simulation was interrupted or killed;
- when it receives SIGTERM, SIGINT or SIGHUP.

On Linux it is a subreaper: whatever the tasks start stays below it in the tree of processes, also after setsid() and
a double fork. The tasks die by PR_SET_PDEATHSIG should the supervisor itself be killed. Elsewhere a process that
called setsid() and whose task has ended can escape.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"
POLL_SECONDS = 0.5
KILL_SECONDS = 5.0
EXEC_FAILED = 2
STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux only).

    Raises:
        OSError: The kernel refused.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def parents() -> dict[int, int]:
    """Map the id of each process to that of its parent."""
    table = {}
    if LINUX:
        for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib would double the start-up time
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    table[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    else:
        with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as listing:
            for line in listing.stdout or ():
                pid, parent = line.split()
                table[int(pid)] = int(parent)
        table.pop(listing.pid, None)
    return table


def descendants(root: int) -> list[int]:
    """Find all processes below one, parents before their children."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:  # grows as it goes
        found += [child for child in children.get(pid, ()) if child not in found]
    return found[1:]


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes, as far as they exist and are ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_group(leader: int) -> None:
    """Kill a process group, if it still has members."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class Supervisor:
    """Start the tasks, watch them, and leave nothing behind.

    Args:
        order: What to run: `program`, `argv`, `directory`, `environ`, `tasks` (each with `environ`, `stdout`
            and `stderr`), `timeout`, `kill_on_bad_exit`.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.running: dict[int, int] = {}
        self.started = time.monotonic()
        self.parent = os.getppid()
        self.wakeup, writing = os.pipe()
        os.set_blocking(writing, False)
        os.set_blocking(self.wakeup, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *STOPPING):
            signal.signal(number, lambda *_: None)

    def tell(self, **event: object) -> None:
        """Write one event, past any buffer, which would complain at the end when nobody is left to read it."""
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(event).encode() + b"\n")

    def start(self, rank: int, task: dict[str, Any]) -> None:
        """Start one task in a session of its own."""
        supervisor = os.getpid()
        pid = os.fork()
        if pid:
            self.running[pid] = rank
            os.close(task["stdout"])
            os.close(task["stderr"])
            return
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, *STOPPING):
                signal.signal(number, signal.SIG_DFL)
            if LINUX:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != supervisor:
                    os._exit(1)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(task["stdout"], 1)
            os.dup2(task["stderr"], 2)
            os.chdir(self.order["directory"])
            environ = {**self.order["environ"], **task["environ"], "SLURM_TASK_PID": str(os.getpid())}
            os.execve(self.order["program"], self.order["argv"], environ)  # noqa: S606
        except BaseException as error:  # the child must never return into the supervisor
            os.write(2, f"srunbook simulate: cannot execute {self.order['argv'][0]}: {error}\n".encode())
            os._exit(EXEC_FAILED)

    def reap(self, *, killed: bool) -> bool:
        """Collect what has ended.

        Args:
            killed: Whether this process has begun to kill.

        Returns:
            Whether a task has failed by itself.
        """
        failed = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return failed
            if pid == 0:
                return failed
            if pid in self.running:
                rank = self.running.pop(pid)
                if not LINUX:  # what it leaves behind is no longer below this process
                    kill_group(pid)
                seconds = time.monotonic() - self.started
                by_us = killed and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                self.tell(event="ended", rank=rank, status=status, killed=by_us, seconds=seconds)
                failed = failed or status != 0

    def watch(self) -> None:
        """Wait until there is a reason to stop."""
        timeout = self.order["timeout"]
        while self.running:
            remaining = POLL_SECONDS
            if timeout is not None:
                remaining = min(remaining, self.started + timeout - time.monotonic())
                if remaining <= 0:
                    self.tell(event="timed_out")
                    return
            ready, _, _ = select.select([0, self.wakeup], [], [], remaining)
            signals = os.read(self.wakeup, 4096) if self.wakeup in ready else b""
            if self.reap(killed=False) and self.order["kill_on_bad_exit"]:
                return
            if STOPPING & set(signals) or os.getppid() != self.parent:
                return
            if 0 in ready and not os.read(0, 4096):
                return

    def kill(self) -> list[int]:
        """Kill everything below this process.

        Returns:
            The ids of the processes that could not be killed.
        """
        deadline = time.monotonic() + KILL_SECONDS
        if not LINUX:  # a child born between the look and the kill would be lost: stop all of them first
            stopped: list[int] = []
            while new := [pid for pid in descendants(os.getpid()) if pid not in stopped]:
                send(new, signal.SIGSTOP)
                stopped += new
        while True:
            left = descendants(os.getpid())
            send(left, signal.SIGKILL)
            self.reap(killed=True)
            if not left or time.monotonic() > deadline:
                return left
            select.select([self.wakeup], [], [], 0.01)
            with contextlib.suppress(BlockingIOError):
                os.read(self.wakeup, 4096)

    def run(self) -> None:
        """Run the tasks to their end, and kill what they leave."""
        left: list[int] = []
        try:
            for rank, task in enumerate(self.order["tasks"]):
                self.start(rank, task)
            self.watch()
        finally:
            left = self.kill()
        self.tell(event="done", left=left)


def main() -> None:
    """Read the order and carry it out."""
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, 65536)
        if not data:
            return
        line += data
    order = json.loads(line)
    for task in order["tasks"]:
        os.set_inheritable(task["stdout"], False)
        os.set_inheritable(task["stderr"], False)
    Supervisor(order).run()


if __name__ == "__main__":
    main()
