"""Start the supervisor, read what the tasks print, and make sure that nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from srunbook.simulate._environment import MARKER
from srunbook.simulate._output import Collector
from srunbook.simulate._supervisor import KILL_SECONDS, LINUX, PR_SET_CHILD_SUBREAPER, descendants, prctl, send

SUPERVISOR = Path(__file__).with_name("_supervisor.py")
CHUNK = 65536
END_SECONDS = 10.0
"""How long the supervisor may take to kill what is left."""


@dataclass
class Ending:
    """How the tasks ended, as the supervisor told it.

    Args:
        ended: Events of tasks, in the order in which they ended.
        timed_out: Whether time was up.
        done: Whether the supervisor finished its work.
        left: Processes that could not be killed.
    """

    ended: list[dict[str, Any]] = field(default_factory=list)
    timed_out: bool = False
    done: bool = False
    left: list[int] = field(default_factory=list)

    def take(self, line: str) -> None:
        """Take one event of the supervisor: a line of JSON."""
        event = json.loads(line)
        kind = event.pop("event")
        if kind == "ended":
            self.ended.append(event)
        self.timed_out = self.timed_out or kind == "timed_out"
        if kind == "done":
            self.done = True
            self.left = event["left"]


def run_tasks(
    order: Mapping[str, Any], environs: Sequence[Mapping[str, str]], collectors: Sequence[Collector], mark: str
) -> Ending:
    """Run all tasks under a supervisor until the last one has ended or been killed.

    Args:
        order: The supervisor's order for all tasks; see `Supervisor`.
        environs: The variables to set for each task.
        collectors: The collector of each task's output.
        mark: The value of `MARKER` in their environment.

    Returns:
        How the tasks ended.
    """
    open_standard_streams()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        tasks, given = [], []
        for environ, collector in zip(environs, collectors, strict=True):
            task: dict[str, Any] = {"environ": dict(environ)}
            for stream in ("stdout", "stderr"):
                reading, task[stream] = os.pipe()
                stack.callback(os.close, reading)
                os.set_blocking(reading, False)
                selector.register(reading, selectors.EVENT_READ, (collector, stream))
                given.append(task[stream])
            tasks.append(task)
        try:
            supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", SUPERVISOR],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, MARKER: mark},
                pass_fds=given,
                start_new_session=True,
            )
        finally:
            for descriptor in given:
                os.close(descriptor)
        assert supervisor.stdin  # noqa: S101  # for the type checker: it was asked for above
        assert supervisor.stdout  # noqa: S101
        with supervisor.stdout, _ended(supervisor, supervisor.stdin, mark):
            with contextlib.suppress(BrokenPipeError):
                supervisor.stdin.write(json.dumps({**order, "tasks": tasks}).encode() + b"\n")
                supervisor.stdin.flush()
            return _read_all(supervisor.stdout.fileno(), selector)


def open_standard_streams() -> None:
    """Open descriptors 0 to 2 where they are closed, lest a pipe take their place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


@contextlib.contextmanager
def _ended(supervisor: subprocess.Popen[bytes], control: IO[bytes], mark: str) -> Iterator[None]:
    """End the supervisor and all tasks when the block ends, for whatever reason."""
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            control.close()
        try:
            supervisor.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        if supervisor.returncode != 0:
            kill_marked(mark)


def _read_all(events: int, selector: selectors.BaseSelector) -> Ending:
    """Read events and output until the supervisor has ended, and then what is left in the pipes."""
    ending = Ending()
    os.set_blocking(events, False)
    selector.register(events, selectors.EVENT_READ)
    pending = b""
    while events in selector.get_map():
        for key, _ in selector.select():
            data = _read(key.fd)
            if data is None:
                continue
            if not data:
                selector.unregister(key.fd)
            if key.data:
                collector, stream = key.data
                collector.take(stream, data)
            else:
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    ending.take(line.decode())
    for key in list(selector.get_map().values()):
        collector, stream = key.data
        while data := _read(key.fd):
            collector.take(stream, data)
    return ending


def _read(descriptor: int) -> bytes | None:
    """Read what has arrived; return no bytes at the end of the stream, None when nothing has arrived."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return None


def marked(mark: str) -> list[int]:
    """Find the processes that carry the mark of a simulation (Linux only; empty elsewhere)."""
    entry = f"{MARKER}={mark}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if entry in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return [pid for pid in found if pid != os.getpid()]


def kill_marked(mark: str) -> None:
    """Kill what the supervisor could not, because it was killed itself."""
    for _ in range(100):
        left = marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return


@contextlib.contextmanager
def inherit_orphans() -> Iterator[None]:
    """Inherit what a killed supervisor leaves behind, and kill it when the block ends (Linux only).

    Every child counts as one of the simulation, so use it only in a process that runs a simulation and nothing else. A
    process that already has children, started by a shell before it became this program, is left as it is.
    """
    if not LINUX or _has_children():
        yield
        return
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        deadline = time.monotonic() + KILL_SECONDS
        while _has_children() and time.monotonic() < deadline:
            send(descendants(os.getpid()), signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.01)
        prctl(PR_SET_CHILD_SUBREAPER, 0)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
