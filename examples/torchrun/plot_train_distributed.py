"""
The full program gives the same losses on one process and on four
=================================================================

DDP is correct when many processes give the same results as one process.
So the program runs twice: on one process, and on two nodes with two processes each.
"""

import csv
import socket
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from srunbook import simulate


def torchrun(nodes, processes, *arguments):
    """Start one torchrun on each node of a simulation."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={processes}"]
    launcher += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"]
    result = simulate.run(
        [*launcher, *arguments], nodes=nodes, ntasks_per_node=1, timeout=300, env={"OMP_NUM_THREADS": "1"}
    )
    assert result.returncode == 0, result.failure
    return result


def train(nodes, processes):
    """Train; return the rows of `metrics.csv` and the picture that the program drew."""
    with tempfile.TemporaryDirectory() as folder:
        result = torchrun(nodes, processes, "full/train_distributed.py", f"--checkpoint-dir={folder}")
        print(result.output)
        with Path(folder, "metrics.csv").open() as file:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        return rows, plt.imread(Path(folder, "curves.png"))


one, picture = train(nodes=1, processes=1)

# %%
# The program draws its own curves and saves them beside its checkpoints:

height, width = picture.shape[:2]
figure = plt.figure(figsize=(width / 100, height / 100), dpi=100)
figure.figimage(picture)

# %%
# The second run has four processes, two on each of two nodes.
# The number before each line is the node's number; each process gives its rank in its rank line.

four, _ = train(nodes=2, processes=2)

losses = np.array([[row["train_loss"] for row in rows] for rows in (one, four)])
difference = np.abs(losses[1] / losses[0] - 1)
for epoch in (1, 5, 10):
    print(f"epoch {epoch:2d}: the losses differ by {difference[epoch - 1]:.1e} of their value")

assert difference[0] < 1e-5
assert min(one[-1]["test_accuracy"], four[-1]["test_accuracy"]) >= 0.97

# %%
# Four processes add the same numbers in a different order, so the rounding differs.
# The difference is tiny after one epoch, and grows because each step builds on the previous one.
