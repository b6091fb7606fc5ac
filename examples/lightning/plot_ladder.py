"""
One device, two processes, four: the same losses
================================================

A conversion is right when many processes learn what one device learns.
Here the program for one device and the one for several nodes train side by side, with the same batch of 64 samples a
step.
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

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
ONE_GPU, SEVERAL_NODES = Path("one_gpu.py").resolve(), Path("several_nodes.py").resolve()


def losses(program, nodes=0, processes=0):
    """Train in a folder of its own; return the loss of each epoch."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if nodes:
            run = simulate.run([sys.executable, program], nodes=nodes, ntasks_per_node=processes, env=ONE_THREAD)
            assert run.returncode == 0, run.failure
            printed = run.output
        else:
            environ = {**os.environ, **ONE_THREAD}
            printed = subprocess.run(
                [sys.executable, program], env=environ, check=True, capture_output=True, text=True
            ).stdout
        os.chdir(here)
    return np.array([float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)])


found = {
    "one_gpu.py": losses(ONE_GPU),
    "several_nodes.py on 1 node x 2": losses(SEVERAL_NODES, 1, 2),
    "several_nodes.py on 2 nodes x 2": losses(SEVERAL_NODES, 2, 2),
}

# %%
# The three curves lie on one another, so each is drawn thinner than the one below it:

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for width, (name, values) in zip((9, 5, 1.5), found.items(), strict=True):
    axes.plot(values, linewidth=width, label=name, solid_capstyle="round")
axes.set(xlabel="epoch", ylabel="loss", yscale="log", xticks=range(5))
axes.legend()

# %%
# And in numbers, how far each is from one device, relative to the loss:

for name, values in found.items():
    difference = np.max(np.abs(values / found["one_gpu.py"] - 1))
    print(f"{name:32} {difference:.0e}")
    assert difference < 1e-5
