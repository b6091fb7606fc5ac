"""
One process and two nodes give the same losses
==============================================

A conversion is correct when many processes learn the same as one process.
Here, ``ddp.py`` trains on one process and on two nodes, always with 64 samples per step.
``one_gpu.py`` also trains, for comparison.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from srunbook import simulate


def losses(name, nodes):
    """Train in a new folder; return the loss of each epoch."""
    program, here = Path(name).resolve(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        env = {"OMP_NUM_THREADS": "1"}
        run = simulate.run([sys.executable, program], nodes=nodes, env=env)
        os.chdir(here)
    assert run.returncode == 0, run.failure
    return np.array([float(loss) for loss in re.findall(r"loss ([\d.]+)", run.output)])


found = {
    "ddp.py, 1 process": losses("ddp.py", 1),
    "ddp.py, 2 nodes": losses("ddp.py", 2),
    "one_gpu.py": losses("one_gpu.py", 1),
}

# %%
# The curves coincide, so each is drawn thinner than the one below it:

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for width, (name, values) in zip((8, 4, 1), found.items(), strict=True):
    axes.plot(values, linewidth=width, label=name, solid_capstyle="round")
axes.set(xlabel="epoch", ylabel="loss", yscale="log", xticks=range(5))
axes.legend()

# %%
# These are the largest differences from ``ddp.py`` on one process, relative to the loss:

for name, values in found.items():
    difference = np.max(np.abs(values / found["ddp.py, 1 process"] - 1))
    print(f"{name:24} {difference:.0e}")
    assert difference < (1e-2 if name == "one_gpu.py" else 1e-5)

# %%
# On two nodes, ``ddp.py`` differs only by rounding, because every step uses the same 64 samples.
# ``one_gpu.py`` shuffles the samples in a different order, so its losses agree to two digits.
