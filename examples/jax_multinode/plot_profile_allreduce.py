"""
What the all-reduce costs
=========================

In ``profile_allreduce.py``, every device computes the sine of four megabytes.
The program then sums the results over all devices.
JAX's profiler records a trace, which the program reads without TensorBoard or a network.
The times below come from two processes that share the CPUs of the machine that built this page.
Run the program on your nodes to learn about your network.
"""

import re
import sys
import tempfile

import matplotlib.pyplot as plt

from srunbook import simulate

with tempfile.TemporaryDirectory() as folder:
    program = [sys.executable, "profile_allreduce.py", "--output", folder]
    result = simulate.run(program, nodes=2, ntasks_per_node=1)
print(result.output)

assert result.returncode == 0
row = r"\[(\d+)\] (all-reduce|compute) +\S+ +10 calls +median +(\S+) ms"
rows = re.findall(row, result.output)
assert {kind for _, kind, _ in rows} == {"all-reduce", "compute"}

# %%
# The compiler chose the operations' names, so the program looks up in the compiled text which are all-reduces.
# An all-reduce's time includes waiting: the process that arrives first waits for the second one.

GREY = "#808080"
figure, axes = plt.subplots(figsize=(8, 2.6))
figure.patch.set_alpha(0)
axes.patch.set_alpha(0)
for rank in ("0", "1"):
    left = 0.0
    for kind, colour in (("compute", "#3a73b5"), ("all-reduce", "#b8591d")):
        width = sum(float(ms) for r, k, ms in rows if (r, k) == (rank, kind))
        label = kind if rank == "0" else None
        axes.barh(f"process {rank}", width, left=left, color=colour, label=label)
        left += width
axes.set_xlabel("median milliseconds of one call", color=GREY)
axes.tick_params(colors=GREY)
for spine in axes.spines.values():
    spine.set_color(GREY)
axes.legend(labelcolor=GREY, framealpha=0, ncol=2, loc="lower center", bbox_to_anchor=(0.5, 1))
figure.tight_layout()
