"""Signals to this process, while something has to be brought to its end in order."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handling(action: Callable[[int], None], *numbers: int) -> Iterator[None]:
    """Handle signals, but those that are ignored, as under nohup; only the main thread can."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, lambda number, _: action(number)) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process as an exception does, so that what was begun is undone.

    Whoever handles them already goes on to do so.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    with handling(lambda number: sys.exit(128 + number), *numbers):
        yield
