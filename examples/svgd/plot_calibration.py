"""
Is the posterior as wide as it should be?
=========================================

A benchmark program repeatedly drew parameters from a prior, drew data for them, and found the posterior with 200
particles (simulation-based calibration, Talts and others 2018).
The rank of the true value among the particles should be any number from 0 to 200 with the same probability.
This page only plots the results that ``bench/svgd_sbc.py`` and ``bench/svgd_nuts.py`` saved.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.append("../../bench")
from measurements import read_measurement

RESULTS = Path("..", "..", "bench", "results")
BINS = 20
calibration = read_measurement(RESULTS / "svgd_sbc.json")
ranks = {one.name: np.array(one.samples["rank"]) for one in calibration.configurations}
possible = calibration.parameters["particles"] + 1

figure, places = plt.subplots(2, -(-len(ranks) // 2), figsize=(9, 5), layout="constrained", sharey=True)
for axes, (name, found) in zip(places.flat, ranks.items(), strict=False):
    expected = len(found) / BINS
    axes.axhspan(expected - 2 * expected**0.5, expected + 2 * expected**0.5, color="lightgray")
    axes.hist(found * BINS // possible, bins=np.arange(BINS + 1), color="#0b63a5")
    axes.set_title(name, fontsize=10)
    axes.set(xticks=[0, BINS], xticklabels=["0", str(possible - 1)])
for axes in places.flat[len(ranks) :]:
    axes.axis("off")

# %%
# In a flat histogram, 95 % of the bars end in the gray band.
# If the bars rise at both ends, the particles are too close together: too often, the true value is outside their range.
# The last panel is a control, with draws from the exact posterior instead of particles.

for one in calibration.configurations:
    inside, p = one.samples["coverage_90_percent"][0], one.samples["p_value"][0]
    print(f"{one.name:28} {inside:5.1f} % of the truths in the middle 90 % of the particles; flat: p = {p:.2g}")

assert len(ranks) > 3
assert all(((found >= 0) & (found < possible)).all() for found in ranks.values())

# %%
# The next plots answer the same question for a posterior without a closed form.
# Each point is one of a logistic regression's 32 parameters, and NUTS is the reference.

regression = read_measurement(RESULTS / "svgd_nuts.json")
others = {one.name: one for one in regression.configurations}
nuts = others.pop("NUTS")
figure, places = plt.subplots(1, 2, figsize=(8.5, 4), layout="constrained")
for marker, (name, one) in zip("x^os", others.items(), strict=False):
    for axes, quantity in zip(places, ("mean", "sd"), strict=True):
        axes.scatter(nuts.samples[quantity], one.samples[quantity], s=22, marker=marker, alpha=0.8, label=name)
for axes, quantity in zip(places, ("mean", "sd"), strict=True):
    ends = min(nuts.samples[quantity]), max(nuts.samples[quantity])
    axes.plot(ends, ends, color="gray", linewidth=1)
    axes.set(xlabel=f"{quantity} by NUTS", ylabel=quantity)
places[0].legend()
