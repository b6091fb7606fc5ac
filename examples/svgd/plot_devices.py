"""
Which device holds which particles?
===================================

The particles are spread evenly over the devices of all processes.
Here, two simulated nodes have one process with three devices each, and share 21 particles.
"""

import re
import sys

import matplotlib.pyplot as plt

from srunbook import simulate

result = simulate.run([sys.executable, "device_map.py", "--particles=21"], nodes=2, gpus_per_node=3, timeout=120)
assert result.returncode == 0, result.failure
lines = [line for rank in result.ranks for line in rank.output.splitlines() if line.startswith("process")]
print("\n".join(lines))

found = [re.findall(r"process (\d+)  (\S+) +particles (?:(\d+) to (\d+)|none)", line)[0] for line in lines]
assert sum(int(last) - int(first) + 1 for _, _, first, last in found if last) == 21

# %%
# 21 isn't divisible by 6, so each device gets four rows, and three rows of the last device hold no particle.
# These empty rows have the weight 0, so the result is the same as for 21 particles on one device.

COLOURS = ["#0b63a5", "#a3480c"]
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
for column, (process, device, first, last) in enumerate(found):
    colour = COLOURS[int(process)]
    for row in range(4):
        number = 4 * column + row
        real = bool(last) and int(first) <= number <= int(last)
        axes.add_patch(plt.Rectangle((column, row), 0.9, 0.9, facecolor=colour if real else "none", edgecolor=colour))
        axes.text(column + 0.45, row + 0.45, number if real else "", ha="center", va="center", color="white")
    axes.text(column + 0.45, -0.35, device, ha="center", color=colour)
    axes.text(column + 0.45, -0.75, f"process {process}", ha="center", color=colour, fontsize=9)
axes.set(xlim=(-0.1, 6.1), ylim=(4.1, -1.1))
axes.axis("off")
