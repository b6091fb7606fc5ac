"""Show a progress bar on the standard error, as tqdm does."""

import sys
import time

for step in range(0, 101, 5):
    bar = "#" * (step // 10)
    print(
        f"\r{step:3}%|{bar:10}| {step}/100 [00:0{step // 25}, errors=0, failed=0]", end="", file=sys.stderr, flush=True
    )
    time.sleep(0.01)
print(file=sys.stderr)
print("done", flush=True)
