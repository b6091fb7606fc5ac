"""Look for a checkpoint and a cache that are not there yet."""

import sys
from pathlib import Path

for name in ("checkpoints/last.pt", "cache/index.json"):
    if not Path(name).exists():
        print(f"{name} not found: starting without it", file=sys.stderr, flush=True)
print("INFO: could not load a tokenizer cache, building one")
print("epoch 1 of 1 done")
