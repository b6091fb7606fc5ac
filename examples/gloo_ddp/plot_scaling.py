"""
How training scales, and what the link allows
=============================================

The nodes have equal CPU shares, and links of 100 or 300 Mbit/s.
Nothing is measured when this page is built: the samples are in ``bench/results/gloo_scaling.json`` and
``bench/results/gloo_overlap.json``.
"""

import statistics
import sys
from pathlib import Path

import matplotlib.pyplot as plt

sys.path.append("../../bench")
from measurements import read_measurement, strong, weak

results = Path("../../bench/results")
measured = read_measurement(results / "gloo_scaling.json")

print(strong(measured, where={"kind": "strong", "link": "100mbit"}).text())

# %%
# These are the results with a link three times as fast:

print(strong(measured, where={"kind": "strong", "link": "300mbit"}).text())

# %%
# An efficiency above 100% comes from the base case, not from the second node.
# On one node, a window costs more in a full batch than in half a batch, as the base cases of both kinds show.
# Each of two nodes computes half a batch, so it saves this difference.

for kind in ("strong", "weak"):
    one = [row for row in measured.configurations if row.parameters["kind"] == kind and row.parameters["nodes"] == 1]
    for row in one:
        batch = row.parameters["batch"]
        print(f"{row.name:25} batch {batch}: {1000 * row.median('step_s') / batch:.2f} ms for a window")

# %%
# In weak scaling, each node has as many samples as the single node:

print(weak(measured, where={"kind": "weak", "link": "100mbit"}).text())

# %%
# What the link allows
# --------------------
#
# In an all-reduce, each of two ranks sends its gradients once, and each of four ranks sends them one and a half times.
# No all-reduce over such a link can be faster than that.
# The dotted lines show the longer of two times: this bound, or one node's step time divided by the number of nodes.
# A step beats the second time if half a batch takes less than half as long to compute, as above.

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for link, colour in (("100mbit", "C0"), ("300mbit", "C1")):
    wanted = ("strong", link)
    rows = [row for row in measured.configurations if (row.parameters["kind"], row.parameters["link"]) == wanted]
    nodes = [row.parameters["nodes"] for row in rows]
    alone = next(row.median("step_s") for row in rows if row.parameters["nodes"] == 1)
    axes.plot(nodes, [row.median("step_s") for row in rows], "o-", color=colour, label=f"{link}, measured")
    expected = [max(alone / row.parameters["nodes"], row.parameters["link_bound_s"]) for row in rows]
    axes.plot(nodes, expected, ":", color=colour, label=f"{link}, expected")
axes.set(xlabel="nodes", ylabel="seconds of a step", ylim=(0, None), xticks=[1, 2, 4])
axes.legend()

# %%
# Predict a step from its buckets
# -------------------------------
#
# The gradients of eight wide layers take about as long to send as to compute.
# DDP sends a bucket when it is ready and the previous one is sent: ``end = max(ready, end before) + all-reduce``.
# The prediction uses two times from the same runs: how long each all-reduce takes alone, and when each bucket is ready.

(row,) = read_measurement(results / "gloo_overlap.json").configurations
seconds = {name: statistics.median(samples) for name, samples in row.samples.items()}
for name in ("backward_s", "all_reduce_s", "alone_s", "predicted_s", "step_s", "blocking_s"):
    print(f"{name:13} {seconds[name]:7.3f}")

share = seconds["all_reduce_s"] / seconds["backward_s"]
error, without = (abs(seconds[name] / seconds["predicted_s"] - 1) for name in ("step_s", "blocking_s"))
print(f"the all-reduces take {share:.0%} of the backward pass")
print(f"with overlap, the step differs from the prediction by {error:.1%}; with overlap switched off, by {without:.1%}")

assert 0.5 <= share <= 1.0
assert error < 0.1 < without
