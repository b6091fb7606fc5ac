"""Started by hand or by the batch script itself, and not by srun.

python broken.py
"""

from __future__ import annotations

import jax

jax.distributed.initialize()
print(f"process {jax.process_index()} of {jax.process_count()}")
