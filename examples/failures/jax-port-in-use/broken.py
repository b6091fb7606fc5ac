"""Another program has the coordinator's port.

srunbook simulate --ntasks-per-node 1 --no-kill-on-bad-exit -- python broken.py
"""

from __future__ import annotations

import socket

import jax

other = socket.create_server(("", 0))  # say, a job of somebody else on this node
port = other.getsockname()[1]
jax.distributed.initialize(f"localhost:{port}", num_processes=1, process_id=0)
