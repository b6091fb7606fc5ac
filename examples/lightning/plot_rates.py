"""
A large batch and its learning rate
===================================

``bench/lightning_rates.py`` trained one model with 32 samples per step, as on one GPU, and with 256, as on eight.
It used five seeds for each case. This page plots the results.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.append("../../bench")
from measurements import read_measurement

measured = read_measurement(Path("../../bench/results/lightning_rates.json"))
curves = {}  # for each rate of a batch of 32, and each case: an epoch after the other
for one in measured.configurations:
    of_rate = curves.setdefault(one.parameters["base_rate"], {})
    of_rate.setdefault(one.parameters["case"], []).append(one)

# %%
# By the linear rule, a batch eight times as large needs eight times the learning rate.
# Without the rule, an epoch has an eighth as many steps of the same length, and makes less progress.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for axes, (rate, cases) in zip(panels, curves.items(), strict=True):
    for case, epochs in cases.items():
        numbers = [one.parameters["epoch"] for one in epochs]
        accuracies = [one.samples["val_accuracy_percent"] for one in epochs]
        (line,) = axes.plot(numbers, [one.median("val_accuracy_percent") for one in epochs], label=case)
        axes.fill_between(
            numbers,
            [min(five) for five in accuracies],
            [max(five) for five in accuracies],
            alpha=0.15,
            color=line.get_color(),
        )
    axes.set(title=f"rate {rate} for a batch of 32", xlabel="epoch")
panels[0].set_ylabel("accuracy of the validation (%)")
panels[0].legend(title="batch")

# %%
# The lines are medians, and the bands reach from the worst seed to the best.
# These are the accuracies after the last epoch:

print(f"{'rate for 32':>11}  {'batch':22} {'rate':>5}  accuracy, worst to best")
last = {}
for rate, cases in curves.items():
    for case, epochs in cases.items():
        accuracies = last[rate, case] = sorted(epochs[-1].samples["val_accuracy_percent"])
        print(
            f"{rate:11}  {case:22} {epochs[-1].parameters['rate']:5.2f}  "
            f"{epochs[-1].median('val_accuracy_percent'):5.1f} %, {accuracies[0]:.1f} to {accuracies[-1]:.1f}"
        )

# %%
# In the left plot, the rate suits the small batch. With the rule, the large batch catches up with the small one.
# Without the rule, the large batch stays behind with all five seeds.
# Warm-up isn't needed here, and slows the first epochs.

small, large, rule, warmed = (last[0.01, case] for case in ("32", "256", "256, rule", "256, rule and warm-up"))
assert large[-1] < small[0]
assert abs(rule[2] - small[2]) < 1
assert abs(warmed[2] - small[2]) < 1

# %%
# In the right plot, the rate is too high even for the small batch. With the rule, the large batch does no better.
# Warm-up helps, but not enough. Here, the large batch does best at the unchanged rate.

small, large, rule, warmed = (last[0.1, case] for case in ("32", "256", "256, rule", "256, rule and warm-up"))
assert large[0] > max(small[-1], rule[-1], warmed[-1])
assert warmed[2] > rule[2]

# %%
# Start with the rule, but don't trust it: try its rate, half of that rate, and a quarter.
