"""Process 1 is killed.

srunbook simulate --ntasks-per-node 2 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import os
import signal
import time

import jax

jax.distributed.initialize(heartbeat_timeout_seconds=10)  # in place of 100
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)
if jax.process_index() == 1:
    os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does to a process that takes too much memory
time.sleep(60)  # process 0 trains
