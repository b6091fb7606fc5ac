"""Collect the results of a sweep in results.csv and results.png, and print which rows to submit again.

python collect.py
"""

import csv
import json
from pathlib import Path

import matplotlib.pyplot as plt

with Path("settings.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))

results, missing = [], []
for number, row in enumerate(rows, start=1):
    path = Path("runs", str(number), "result.json")
    result = json.loads(path.read_text()) if path.exists() else {}
    if row.items() <= result.items():
        results.append({"row": number, **result})
    else:  # not finished, or with other settings
        missing.append(str(number))

results.sort(key=lambda result: result["loss"])  # the best comes first
for result in results:
    print(*(f"{name}={value}" for name, value in result.items()))
if results:
    with Path("results.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, results[0])
        table.writeheader()
        table.writerows(results)

    figure, axes = plt.subplots()
    for width in dict.fromkeys(row["width"] for row in rows):  # EDIT: a line for each width
        line = sorted((float(result["lr"]), result["loss"]) for result in results if result["width"] == width)
        axes.plot([lr for lr, _ in line], [loss for _, loss in line], "o-", label=f"width {width}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss of the last epoch")
    axes.legend()
    figure.savefig("results.png")

print(f"{len(results)} of {len(rows)} rows have a result")
if missing:
    print(f"submit the others again: sbatch --array={','.join(missing)}%4 sweep.sbatch")
