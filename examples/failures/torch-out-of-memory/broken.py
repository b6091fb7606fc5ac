"""A batch that no memory holds.

python broken.py
"""

from __future__ import annotations

import torch

batch = torch.empty(2**48)  # a petabyte of float32
