"""Write what PyTorch's flight recorder holds, when no step has ended for a while or at SIGUSR1."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from torch._C._distributed_c10d import _dump_fr_trace_json


def watch(rank: int, folder: Path, seconds: float) -> Callable[[], None]:
    """Return what to call after each step; after a silence of so many seconds, write a dump.

    A thread writes it. The program itself may wait in C++, where Python handles no signal.
    """
    heard, told = socket.socketpair()
    told.setblocking(False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.set_wakeup_fd(told.fileno())  # every signal writes its number there

    def listen() -> None:
        limit: float | None = seconds
        while True:
            news = heard.recv(4096) if select.select([heard], [], [], limit)[0] else b""
            if not news or signal.SIGUSR1 in news:
                folder.mkdir(exist_ok=True)
                part = folder / f"rank_{rank}.part"
                part.write_bytes(_dump_fr_trace_json())
                part.rename(part.with_suffix(".json"))
            limit = seconds if news else None  # one dump for each silence

    def stepped() -> None:
        with suppress(BlockingIOError):  # the thread still writes, and has much to hear
            told.send(b"\0")

    threading.Thread(target=listen, daemon=True).start()
    return stepped
