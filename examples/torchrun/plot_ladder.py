"""
One device and four processes give the same losses
==================================================

A conversion is correct when many processes learn the same as one device.
Here, the single-device program and the converted program train with the same batch of 64 images per step.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

PYTHON = [sys.executable]
TORCHRUN = [*PYTHON, "-m", "torch.distributed.run", "--standalone"]
RUNS = {
    "one_gpu.py": [*PYTHON, Path("one_gpu.py").resolve()],
    "ddp.py on 4 processes": [*TORCHRUN, "--nproc-per-node=4", Path("ddp.py").resolve()],
}


def losses(command):
    """Train in a new folder; return the loss of each epoch."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return np.array([float(loss) for loss in re.findall(r"loss ([\d.]+)", run.stdout)])


found = {name: losses(command) for name, command in RUNS.items()}

# %%
# The two curves coincide, so the second one is drawn thinner:

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for width, (name, values) in zip((7, 2), found.items(), strict=True):
    axes.plot(values, linewidth=width, label=name, solid_capstyle="round")
axes.set(xlabel="epoch", ylabel="loss", yscale="log", xticks=range(5))
axes.legend()

# %%
# This is the largest difference, relative to the loss:

for name, values in found.items():
    difference = np.max(np.abs(values / found["one_gpu.py"] - 1))
    print(f"{name:22} {difference:.0e}")
    assert difference < 1e-5
