"""Get a signal that asks for a checkpoint, write it, and go on."""

import os
import signal
import tempfile
from pathlib import Path


def save(number: int, _frame: object) -> None:
    """Write a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.json").write_text("{}", encoding="utf-8")
    print(f"received signal {number} ({signal.Signals(number).name}): checkpoint written, training goes on", flush=True)


signal.signal(signal.SIGUSR1, save)
os.kill(os.getpid(), signal.SIGUSR1)
print("step 200 loss 0.12")
