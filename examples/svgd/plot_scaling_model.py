"""
The parts of a distributed SVGD step
====================================

Four constants predict how long a step takes: the cost of a score, of a pair of particles, of a message and of a byte.
The benchmark fits them on a small Slurm cluster, predicts step times, and only then measures them.
"""

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.append("../../bench")
from measurements import read_measurement

results = Path("../../bench/results")
found = read_measurement(results / "svgd_scaling.json")
WIDTH = 4  # bytes of a float32


def parts(fitted, n, nodes, d):
    """Seconds of each part of a step, in the order of the formula."""
    m = n / nodes
    return {
        "scores": m * fitted["score_s"],
        "kernel": m * n * fitted["pair_s"],
        "messages": fitted["alpha_s"] * math.log2(nodes),
        "bytes": fitted["beta_s"] * (1 - 1 / nodes) * n * 2 * d * WIDTH,
    }


# %%
# Each cluster has its own constants, because its nodes have a different CPU share or a different link.
# The parts have to add up to the benchmark's prediction.

fits = {}
for item in read_measurement(results / "svgd_scaling_fit.json").configurations:
    fits[item.parameters["link"], item.parameters["cluster_nodes"]] = item.parameters
runs = [((item.parameters["link"], item.parameters["cluster_nodes"]), item) for item in found.configurations]

for place, item in runs:
    total = sum(parts(fits[place], item.parameters["n"], item.parameters["nodes"], found.parameters["d"]).values())
    assert math.isclose(total, item.median("predicted_s"), rel_tol=0.01), item.name

# %%
# On two nodes with a 100 Mbit/s link, steps took up to a seventh longer than each prediction that we trusted.

for place, item in runs:
    if place == ("100mbit", 2) and item.parameters["trusted"] == "yes":
        print(f"{item.name}: off by {item.median('off_percent'):+.1f}%")
        assert 1 < item.median("step_s") / item.median("predicted_s") < 1 + 1 / 7

# %%
# The bars show the parts of the prediction, and the dots show the measured times.
# Bars without a dot weren't measured.

GREY = "#808080"
COLOURS = {"scores": "#4c8dd6", "kernel": "#e08a3c", "messages": "#8fbf6f", "bytes": "#c44e52"}
figure, panels = plt.subplots(1, len(fits), figsize=(3 * len(fits), 3.4), squeeze=False)
figure.patch.set_alpha(0)
for axes, (place, fitted) in zip(panels[0], fits.items(), strict=True):
    strong = [item for at, item in runs if at == place and item.parameters["kind"] == "strong"]
    n = strong[0].parameters["n"]
    counts = [1, 2, 4, 8, 16]
    bottom = [0.0] * len(counts)
    for name, colour in COLOURS.items():
        heights = [parts(fitted, n, nodes, found.parameters["d"])[name] for nodes in counts]
        axes.bar(range(len(counts)), heights, bottom=bottom, color=colour, alpha=0.8, label=name)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    measured = {item.parameters["nodes"]: item.median("step_s") for item in strong}
    places = [counts.index(nodes) for nodes in measured]
    axes.plot(places, list(measured.values()), "o", color="black", markeredgecolor="white", label="measured")
    axes.patch.set_alpha(0)
    axes.set_xticks(range(len(counts)), counts)
    axes.set_title(f"{place[0]}, {fitted['quota']} CPU each", color=GREY, fontsize=10)
    axes.set_xlabel("nodes", color=GREY)
    axes.tick_params(colors=GREY)
    for spine in axes.spines.values():
        spine.set_color(GREY)
panels[0, 0].set_ylabel(f"seconds of a step, n={n}", color=GREY)
panels[0, 0].legend(labelcolor=GREY, framealpha=0, fontsize=8)
figure.tight_layout()
