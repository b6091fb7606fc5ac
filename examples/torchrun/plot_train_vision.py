"""
Save memory with batches in pieces and recomputation
====================================================

This page shows two ways to train with less memory, on two processes.
Neither changes the results, as the losses show.
"""

import re
import sys
import tempfile

import numpy as np

from srunbook import simulate


def losses(*arguments):
    """Train for an epoch; return its loss."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with tempfile.TemporaryDirectory() as folder:
        program = ["full/train_vision.py", "--epochs=1", f"--checkpoint-dir={folder}", *arguments]
        result = simulate.run([*launcher, *program], nodes=1, timeout=300, env={"OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.failure
    print("\n".join(line for line in result.output.splitlines() if "Epoch" in line))
    return np.array([float(loss) for loss in re.findall(r"Avg Loss: (\S+),", result.output)])


plain = losses()

# %%
# Gradient accumulation splits each process's batch into pieces, here into four.
# Only one piece at a time needs memory, and the gradients are sent once, with the last piece.

pieces = losses("--accumulate=4")
print("largest relative difference:", f"{np.max(np.abs(pieces / plain - 1)):.0e}")

assert np.max(np.abs(pieces / plain - 1)) < 1e-2

# %%
# Gradient checkpointing keeps only the inputs of each block of the network.
# The backward pass computes the rest a second time: this takes less memory and more work, and gives the same numbers.

forgetting = losses("--recompute")

assert (forgetting == plain).all()
