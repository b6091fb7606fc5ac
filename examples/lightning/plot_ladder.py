"""
One process and two nodes: the same losses
==========================================

A conversion is right when many processes learn what one process learns.
Here ``ddp.py`` trains on one process and on two nodes, always with 64 samples in a step, and ``one_gpu.py`` beside it.
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
    """Train in a folder of its own; return the loss of each epoch."""
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
# The curves lie on one another, so each is drawn thinner than the one below it:

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for width, (name, values) in zip((8, 4, 1), found.items(), strict=True):
    axes.plot(values, linewidth=width, label=name, solid_capstyle="round")
axes.set(xlabel="epoch", ylabel="loss", yscale="log", xticks=range(5))
axes.legend()

# %%
# In numbers: how far each is from one process, relative to the loss.

for name, values in found.items():
    difference = np.max(np.abs(values / found["ddp.py, 1 process"] - 1))
    print(f"{name:24} {difference:.0e}")
    assert difference < (1e-2 if name == "one_gpu.py" else 1e-5)

# %%
# On one process and on two nodes, ``ddp.py`` differs by rounding only: every step takes the same 64 samples.
# ``one_gpu.py`` shuffles them in another order, so it learns the same, to two digits.
