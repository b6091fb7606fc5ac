"""
One process and four processes give the same losses
===================================================

A conversion is correct when many processes learn the same as one process.
Here, the single-process program and the converted program train with the same batch of 64 windows per step.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from srunbook import simulate


def losses(name, tasks):
    """Train in a new folder; return the loss of each epoch."""
    command = [sys.executable, str(Path(name).resolve())]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        if tasks:
            os.chdir(folder)
            result = simulate.run(command, ntasks_per_node=tasks, timeout=120)
            os.chdir(here)
            assert result.returncode == 0, result.failure
            printed = result.output
        else:
            printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    return np.array([float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)])


RUNS = {"one_process.py": losses("one_process.py", 0)}
RUNS["ddp_cpu.py, 4 processes"] = losses("ddp_cpu.py", 4)

# %%
# The two curves coincide, so the second one is drawn thinner:

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for width, (name, values) in zip((7, 2), RUNS.items(), strict=True):
    axes.plot(values, linewidth=width, label=name, solid_capstyle="round")
axes.set(xlabel="epoch", ylabel="loss", yscale="log", xticks=range(5))
axes.legend()

# %%
# This is the largest difference, relative to the loss:

for name, values in RUNS.items():
    difference = np.max(np.abs(values / RUNS["one_process.py"] - 1))
    print(f"{name:24} {difference:.0e}")
    assert difference < 1e-5
