"""
One device and four devices give the same losses
================================================

A program for many devices is correct when it gives the same results as one device.
``one_device.py`` runs on a single device. ``data_parallel.py`` divides each batch of 64 rows among its devices.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from srunbook import simulate

here, folder = Path.cwd(), tempfile.mkdtemp()
os.chdir(folder)  # the programs leave their models here


def losses(output):
    """Steps and losses that a program printed: an array of shape (5, 2)."""
    return np.array(re.findall(r"step (\d+): loss (\S+)", output), float)


alone = subprocess.run([sys.executable, here / "one_device.py"], capture_output=True, text=True, check=True)
curves = {"one_device.py": losses(alone.stdout)}
result = simulate.run([sys.executable, here / "data_parallel.py"], ntasks_per_node=4)
assert result.returncode == 0, result.failure
curves["data_parallel.py, 4 processes"] = losses(result.output)

one = curves["one_device.py"]
for name, found in curves.items():
    print(f"{name:30s}", *(f"{loss:.6f}" for loss in found[:, 1]))
    np.testing.assert_allclose(found, one, rtol=1e-5)

# %%
# The programs print six digits. If the last digit differs, floats were added in a different order.

GREY = "#808080"
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
figure.patch.set_alpha(0)
axes.patch.set_alpha(0)
for (name, found), width, colour in zip(curves.items(), (9, 1.5), ("#4c8dd6", "#e08a3c"), strict=True):
    axes.plot(*found.T, linewidth=width, color=colour, label=name)
axes.set_xlabel("step", color=GREY)
axes.set_ylabel("loss", color=GREY)
axes.tick_params(colors=GREY)
for spine in axes.spines.values():
    spine.set_color(GREY)
axes.legend(labelcolor=GREY, framealpha=0)
os.chdir(here)
shutil.rmtree(folder)
