"""Lose the thread that loads the data."""

import sys
import threading


def load() -> None:
    """Load the first batch."""
    raise LookupError("no batch of bucket 4")


thread = threading.Thread(target=load)
thread.start()
thread.join()
sys.exit(3)
