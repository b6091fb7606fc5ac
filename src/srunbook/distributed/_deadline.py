"""Share one deadline among everything that a call waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Deadline:
    """When a wait has to be over.

    Args:
        seconds: What was given, for messages.
        at: The end, on the clock of `time.monotonic`.
    """

    seconds: float
    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Make the deadline that lies so many seconds from now.

        >>> 0 < Deadline.after(60).left <= 60
        True
        """
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; negative once it has passed."""
        return self.at - time.monotonic()


def call_within(deadline: Deadline, call: Callable[[], T]) -> T:
    """Make a call that may hang where no signal and no exception reaches it.

    Args:
        deadline: How long to wait for it.
        call: The function. When time is up, it keeps running in its thread.

    Returns:
        What the call returned.

    Raises:
        TimeoutError: It did not return in time.
        BaseException: Whatever the call raised.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="srunbook start", daemon=True)
    thread.start()
    thread.join(max(0.0, deadline.left))
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"it was not through within {deadline.seconds:g} s")
    return results[0]
