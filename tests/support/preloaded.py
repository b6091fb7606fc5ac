"""Run Python programs in processes forked from one that has imported torch and Lightning: they start at once.

`preloaded(folder)` gives the path of a command that takes the place of `sys.executable`. Whoever calls it sees a
process like any other: it has the arguments, environment, folder and streams of the caller, gets the signals sent to
the command, dies with it, and ends with the status of the program. What differs: modules of `MODULES` are imported
before the program sets any variable. `--record` and `--full` therefore use the plain interpreter.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import multiprocessing.process
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYTHON = sys.executable
"""The plain interpreter, whatever takes its place later."""

MODULES = ("lightning", "torch.distributed.run", "torch.utils.tensorboard", "sklearn.datasets", "matplotlib.figure")

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
arguments = sys.argv[1:]
own = arguments and (arguments[0] in ("-c", "-m") or not arguments[0].startswith("-"))
if not own or "--multiprocessing-fork" in arguments:
    os.execv({python!r}, [{python!r}, *arguments])
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.connect({address!r})
order = json.dumps(dict(arguments=arguments, environ=dict(os.environ), directory=os.getcwd())).encode()
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, _: server.send(bytes([number])))
socket.send_fds(server, [len(order).to_bytes(4, "big")], [0, 1, 2])
server.sendall(order)
status = int(server.makefile().readline() or -9)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status not in (9, 19) else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@contextlib.contextmanager
def preloaded(folder: Path, *imported: str) -> Iterator[Path]:
    """Start the process that forks, and yield the command.

    It may itself be started from another such process: it has then imported most already.

    Args:
        folder: Where the command and the socket lie; its path has to be short.
        imported: What to import besides `MODULES`.
    """
    address, client = folder / "socket", folder / "python"
    client.write_text(CLIENT.format(python=PYTHON, address=str(address)), encoding="utf-8")
    client.chmod(0o755)
    hidden = ("SLURM", "OMP_", "JAX_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, __file__, str(address), *imported]
    with subprocess.Popen(command, env=own, stdin=subprocess.PIPE) as process:
        while not address.exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield client
        assert process.stdin
        process.stdin.close()


class Forked(Exception):  # noqa: N818 - not an error
    """This process is the child: it leaves the loop of the server, and runs the program at the top level."""


class Server:
    """Forks a process for each connection, and passes signals and statuses on.

    Each leads a session of its own, so that what it started, such as workers that load data, dies with it.

    Args:
        listener: Where the commands connect.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.selector = selectors.DefaultSelector()
        self.clients: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Serve until standard input is closed; then kill what is left."""
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for readable in (0, wake, self.listener):
            self.selector.register(readable, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fd == 0:
                    self.kill_all()
                    return
                if key.fd == wake:
                    os.read(wake, 4096)
                    self.reap()
                elif key.fileobj is self.listener:
                    self.accept()
                else:
                    self.pass_on(key.data)

    def accept(self) -> None:
        """Fork a process that runs what a command asks for."""
        client, _ = self.listener.accept()
        size, streams, _, _ = socket.recv_fds(client, 4, 3)
        order = b""
        while len(order) < int.from_bytes(size, "big"):
            order += client.recv(65536)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            for connection in (client, self.listener, *self.clients.values()):
                connection.close()
            self.selector.close()
            raise Forked(json.loads(order))
        for stream in streams:
            os.close(stream)
        self.clients[pid] = client
        self.selector.register(client, selectors.EVENT_READ, pid)

    def pass_on(self, pid: int) -> None:
        """Pass signals of a command on to its process; kill that when the command is dead."""
        if pid not in self.clients:
            return
        numbers = self.clients[pid].recv(64)
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if not numbers:
            kill_session(pid)
            self.selector.unregister(self.clients[pid])

    def reap(self) -> None:
        """Tell commands how their processes have ended."""
        for pid in list(self.clients):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                client = self.clients.pop(pid)
                with contextlib.suppress(KeyError):
                    self.selector.unregister(client)
                with contextlib.suppress(OSError):
                    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                client.close()

    def kill_all(self) -> None:
        """Kill all processes."""
        for pid in self.clients:
            kill_session(pid)


def kill_session(leader: int) -> None:
    """Kill what is left of a process and of what it started."""
    for kill in (os.kill, os.killpg):  # at its very start it has no group of its own
        with contextlib.suppress(ProcessLookupError):
            kill(leader, signal.SIGKILL)


def become(order: dict[str, Any]) -> None:
    """Make this process look as if the interpreter had just started with these arguments."""
    os.chdir(order["directory"])
    multiprocessing.process.ORIGINAL_DIR = order["directory"]  # where processes that it spawns look for the program
    os.environ.clear()
    os.environ.update(order["environ"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), write_through=unbuffered)
    errors = io.BufferedWriter(io.FileIO(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, errors="backslashreplace", line_buffering=True)
    sys.executable = str(Path(sys.argv[1]).with_name("python"))
    import torch

    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))


def run(arguments: list[str]) -> None:
    """Run a program as `__main__`, as `python PROGRAM`, `python -c CODE` or `python -m MODULE` does."""
    import runpy

    places = [entry for entry in os.environ.get("PYTHONPATH", "").split(":") if entry]
    sys.path[:] = places + sys.path[1:]
    sys.orig_argv[:] = [sys.executable, *arguments]
    if own := next((place for place in places if Path(place, "sitecustomize.py").is_file()), None):
        runpy.run_path(f"{own}/sitecustomize.py", run_name="sitecustomize")
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        sys.modules.pop(arguments[1], None)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        code = compile(arguments[1], "<string>", "exec")
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        main.__file__ = arguments[0]
        code = compile(Path(arguments[0]).read_bytes(), arguments[0], "exec")
    try:
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        outside = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(outside), outside)  # torch's own names the rank
        sys.exit(1)


if __name__ == "__main__":
    for name in (*MODULES, *sys.argv[2:]):
        __import__(name)
    gc.collect()
    gc.freeze()  # no memory is copied, and no time spent at the end, for the garbage of imports
    place = sys.argv[1]
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(f"{place}.new")
    listening.listen(64)
    Path(f"{place}.new").rename(place)
    try:
        Server(listening).serve()
    except Forked as forked:
        (given,) = forked.args
        become(given)
    else:
        sys.exit()
    run(given["arguments"])
