"""The name of the first node is unknown on the others.

python broken.py
"""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

dist.init_process_group(
    "gloo", init_method="tcp://node1.invalid:29500", rank=1, world_size=2, timeout=timedelta(seconds=4)
)
