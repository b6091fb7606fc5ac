"""
Data-parallel training gives the same losses on one process and on four
=======================================================================

A program for many processes is correct when it gives the same results as one process.
So ``train_data_parallel.py`` runs twice with the same global batch: with all 64 rows on one process,
and with 16 rows on each of four processes.
"""

import re
import sys

import matplotlib.pyplot as plt
import numpy as np

from srunbook import simulate


def losses(nodes, ntasks_per_node):
    """Loss of every step on every rank: an array of shape (ranks, steps)."""
    program = [sys.executable, "train_data_parallel.py", "--every", "1"]
    result = simulate.run(program, nodes=nodes, ntasks_per_node=ntasks_per_node)
    assert result.returncode == 0, result.failure
    lines = result.output.splitlines()
    print("\n".join(line for line in lines if re.search(r"\[0\] step +[0-9]*0 |rank .* end ", line)))
    found = [re.findall(r"loss (\S+)", rank.output) for rank in result.ranks]
    return np.array(found, float)


one = losses(nodes=1, ntasks_per_node=1)[0]

# %%
# The output shows every tenth loss and the process's last line.
# The next run has four processes, two on each of two nodes. The losses come from process 0:

four = losses(nodes=2, ntasks_per_node=2)

# All four processes report the same loss at every step.
assert (four == four[0]).all()
# It differs from the loss of one process only by rounding: floats are added in a different order.
largest = np.max(np.abs(four[0] - one) / one)
print(f"largest relative difference in 40 steps: {largest:.1e}")
assert largest < 1e-5

# %%
# The last lines contain a fingerprint of the parameters, ``params``.
# The fingerprint is the same on all four processes, so they hold the same model, bit for bit.
# The single process has a different fingerprint because it adds floats in a different order.

GREY = "#808080"
figure, axes = plt.subplots(figsize=(8, 3))
figure.patch.set_alpha(0)
axes.patch.set_alpha(0)
axes.plot(one, color="#4c8dd6", linewidth=7, alpha=0.6, label="one process")
axes.plot(four[0], color="#e08a3c", linewidth=1.8, label="four processes")
axes.set(yscale="log")
axes.set_xlabel("step", color=GREY)
axes.set_ylabel("loss", color=GREY)
axes.tick_params(which="both", colors=GREY)
for spine in axes.spines.values():
    spine.set_color(GREY)
axes.legend(labelcolor=GREY, framealpha=0)
figure.tight_layout()
