"""Start each task under its guard, pass on what the tasks print line by line, and wait until all have ended."""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

GUARD = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_guard.py"))]
CHUNK = 65536


class Collector:
    """Keep the last lines that one task prints (None keeps all), echo them, and write their bytes to a file."""

    def __init__(self, rank: int, *, label: bool, echo: bool, keep: int | None, log: IO[bytes] | None) -> None:
        self.lines: deque[tuple[str, str]] = deque(maxlen=keep)
        """The lines that are kept, each with the name of its stream."""
        self._prefix = f"[{rank}] " if label else ""
        self._echo = echo
        self._log = log
        self._decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in ("stdout", "stderr")}
        self._rests = {"stdout": "", "stderr": ""}

    def take(self, stream: str, data: bytes) -> None:
        """Take bytes from the stream `stdout` or `stderr` of the task; no bytes mean that the stream has ended.

        Raises:
            OSError: The log or the echo cannot be written.
        """
        if self._log:
            self._log.write(data)
        *lines, rest = (self._rests[stream] + self._decoders[stream].decode(data, final=not data)).split("\n")
        if rest and not data:
            lines.append(rest)
            rest = ""
        self._rests[stream] = rest
        self.lines += [(stream, line) for line in lines]
        if self._echo and lines:
            write(getattr(sys, stream), [self._prefix + line for line in lines])

    def finish(self) -> None:
        """End both streams, for a last line without its newline."""
        for stream in self._rests:
            self.take(stream, b"")


def write(target: IO[str] | None, lines: Iterable[str]) -> None:
    """Write lines at once, with a replacement for what the target cannot encode. A closed stream is None."""
    if target is None:
        return
    text = "".join(f"{line}\n" for line in lines)
    encoding = getattr(target, "encoding", None)
    if encoding:
        text = text.encode(encoding, "replace").decode(encoding)
    target.write(text)
    target.flush()


class Ending(NamedTuple):
    """How one task ended."""

    rank: int
    status: int  # as wait() returns it
    killed: bool  # by the simulation
    seconds: float  # since the start of the simulation


def run_tasks(
    command: Sequence[str],
    environs: Sequence[Mapping[str, str]],
    collectors: Sequence[Collector],
    *,
    timeout: float | None,
    kill_on_bad_exit: bool,
) -> tuple[list[Ending], bool]:
    """Run all tasks until the last one has ended or been killed.

    The standard input of each guard is a socket. Closing our end stops the task, and so does our own death. `command`
    has the path of the program, its name, and its arguments.

    Returns:
        How the tasks ended, in that order, and whether time was up.

    Raises:
        OSError: A log file or the echo could not be written; all tasks were killed.
    """
    guards: list[subprocess.Popen[bytes]] = []
    lines: list[socket.socket] = []
    errors: list[BaseException] = []
    with contextlib.ExitStack() as stack:
        here, there = (stack.enter_context(end) for end in socket.socketpair())
        copier = threading.Thread(target=_copy_output, args=(guards, collectors, there, errors))
        try:
            for environ in environs:
                ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
                lines.append(ours)
                guard = subprocess.Popen(
                    [*GUARD, os.pathsep.join(map(str, sys.path)), *command],
                    env=environ,
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
                guards.append(stack.enter_context(guard))
                theirs.close()
            copier.start()
            endings, timed_out = _await_ends(lines, here, timeout=timeout, kill_on_bad_exit=kill_on_bad_exit)
        finally:
            _stop(lines)
            for guard in guards:
                guard.wait()
            here.close()
            if copier.ident:  # it was started
                copier.join()
    if errors:
        raise errors[0]
    return endings, timed_out


def _stop(lines: Sequence[socket.socket]) -> None:
    """Have the guards kill their tasks and everything that these have started."""
    for line in lines:
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_WR)


def _await_ends(
    lines: Sequence[socket.socket], copier: socket.socket, *, timeout: float | None, kill_on_bad_exit: bool
) -> tuple[list[Ending], bool]:
    """Wait until all tasks have ended, and stop them when one fails or time is up. Return early if the copier fails."""
    begun = time.monotonic()
    endings: list[Ending] = []
    stopped = timed_out = False
    with selectors.DefaultSelector() as selector:
        selector.register(copier, selectors.EVENT_READ)
        for rank, line in enumerate(lines):
            selector.register(line, selectors.EVENT_READ, rank)
        while len(endings) < len(lines):
            left = None if stopped or timeout is None else begun + timeout - time.monotonic()
            if left is not None and left <= 0:
                stopped = timed_out = True
                _stop(lines)
            for key, _ in selector.select(None if stopped or left is None else min(left, 3600)):
                if key.fileobj is copier:
                    return endings, timed_out
                selector.unregister(key.fileobj)
                # A guard that was killed says nothing; its task has died with it.
                status = int(lines[key.data].recv(64) or signal.SIGKILL)
                killed = stopped and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                endings.append(Ending(key.data, status, killed, time.monotonic() - begun))
                if status and kill_on_bad_exit and not stopped:
                    stopped = True
                    _stop(lines)
    return endings, timed_out


def _copy_output(
    guards: Sequence[subprocess.Popen[bytes]],
    collectors: Sequence[Collector],
    caller: socket.socket,
    errors: list[BaseException],
) -> None:
    """Pass on what the tasks print until the caller closes its socket, and then what is still in the pipes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the main thread
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(caller, selectors.EVENT_READ)
            for guard, collector in zip(guards, collectors, strict=True):
                for name in ("stdout", "stderr"):
                    selector.register(getattr(guard, name), selectors.EVENT_READ, (collector, name))
            while ready := [key for key, _ in selector.select() if key.data]:
                for key in ready:
                    collector, name = key.data
                    data = os.read(key.fd, CHUNK)
                    collector.take(name, data)
                    if not data:
                        selector.unregister(key.fileobj)
        for collector in collectors:
            collector.finish()
    except BaseException as error:  # the caller raises it
        errors.append(error)
    finally:
        caller.close()
