"""The port of the guides, 29500, belongs to another job on this node.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- python broken.py
"""

from __future__ import annotations

import contextlib
import socket

import torch.distributed as dist

with socket.socket() as other_job:
    with contextlib.suppress(OSError):  # then there really is one
        other_job.bind(("", 29500))
        other_job.listen()
    # The mistake: everybody has copied this number.
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=0, world_size=1)
