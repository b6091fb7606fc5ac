"""
The same training on one process and on four
============================================

A program that runs on many processes is right when it computes what one process computes.
So the same global batch goes through ``train_data_parallel.py`` twice: all 64 rows on one process,
and 16 rows on each of four.
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
# Every tenth loss is shown, and the line with which a process ends.
# Now four processes, two on each of two nodes. The losses are those of process 0:

four = losses(nodes=2, ntasks_per_node=2)

# All four processes report the same loss at every step.
assert (four == four[0]).all()
# It differs from that of one process by rounding only: sums are made in another order.
largest = np.max(np.abs(four[0] - one) / one)
print(f"largest relative difference in 40 steps: {largest:.1e}")
assert largest < 1e-5

# %%
# The last lines carry a fingerprint of the parameters, ``params``.
# It is the same on all four processes: they hold the same model, bit for bit.
# It is not the same as on one process, for the same reason as above.

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
