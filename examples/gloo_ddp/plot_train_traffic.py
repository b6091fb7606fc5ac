"""
Forecast road speeds with two ranks
===================================

Two ranks train one model on freeway speeds, and the model has to beat two baselines that need no training.
The speeds are synthetic: they come from a traffic model.
"""

import csv
import re
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from srunbook import simulate

sys.path.insert(0, "full")
from traffic_data import SLOTS, STEPS, TrafficNet, cached_speeds, prepare_speeds

with tempfile.TemporaryDirectory() as folder:
    options = ["--max-steps=40", f"--results={folder}/results", f"--data-dir={folder}"]
    result = simulate.run([sys.executable, "full/train_traffic.py", *options], nodes=2, timeout=120)
    assert result.returncode == 0, result.failure
    print(result.output)
    with Path(folder, "results", "metrics.csv").open() as file:
        rows = [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(file)]
    state = torch.load(Path(folder, "results", "checkpoint_latest.pth"), weights_only=True)
    mph, times, _ = cached_speeds(Path(folder), 35)

baselines = {name: float(mae) for name, mae in re.findall(r"baseline (.*?)  val_mae ([\d.]+)", result.output)}

# %%
# The plot shows the validation error after each epoch, and the baselines.
# Each epoch has only 40 steps, so that this page builds quickly.

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.plot([row["epoch"] for row in rows], [row["val_mae"] for row in rows], marker="o", label="two ranks")
for (name, mae), style in zip(baselines.items(), ("--", ":"), strict=True):
    axes.axhline(mae, color="gray", linestyle=style, label=f"baseline: {name}")
axes.set(xlabel="epoch", ylabel="val_mae (mph)", ylim=(0, None))
axes.legend()

assert rows[-1]["val_mae"] < 0.85 * min(baselines.values())

# %%
# The next plot shows forecasts half an hour ahead, for one sensor on a weekday that isn't in the training data.

_, _, usual = prepare_speeds(mph, times)
model = TrafficNet(usual, state["model"]["write.weight"].shape[1])
model.load_state_dict(state["model"])
sensor, ahead = 8, 6
day = np.arange(29 * SLOTS + 5 * 12, 29 * SLOTS + 22 * 12)  # from 5 to 22 o'clock
mph, times = torch.as_tensor(mph), torch.as_tensor(times)
with torch.no_grad():
    past = torch.stack([mph[at - ahead + 1 - STEPS : at - ahead + 1] for at in day])
    next_hour = torch.stack([times[at - ahead + 1 : at - ahead + 1 + STEPS] for at in day])
    forecast = model(past, next_hour)[:, ahead - 1, sensor]
truth = mph[day, sensor]

hours = (day % SLOTS) / 12
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
axes.plot(hours, np.where(truth > 0, truth, np.nan), color="black", linewidth=1, label="measured")
axes.plot(hours, forecast, label="forecast 30 minutes before")
axes.plot(hours, usual[times[day], sensor], linestyle=":", color="gray", label="daily mean")
axes.set(xlabel="hour of the day", ylabel="speed (mph)", ylim=(0, 80))
axes.legend(loc="lower right")

# %%
# For each epoch, the program writes a row with these columns:

print(", ".join(rows[-1]))
