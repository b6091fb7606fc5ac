"""
One model, four launchers
=========================

One model is trained four times: by one process, and by two processes that srun, torchrun or Lightning coordinates.
All four programs see the same samples in the same order, so they must have the same losses.
"""

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from srunbook import simulate

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def train(name, folder):
    """Runs one of the four programs; returns its losses and its parameters."""
    kept = str(Path(folder, name).with_suffix(".pt"))
    if name in ("srun_ddp.py", "lightning_ddp.py"):
        result = simulate.run([sys.executable, name, kept], ntasks_per_node=2, env=ONE_THREAD)
        assert result.returncode == 0, result.failure
    else:
        launcher = TORCHRUN if name == "torchrun_ddp.py" else [sys.executable]
        subprocess.run([*launcher, name, kept], check=True)
    return torch.load(kept)


PROGRAMS = ("one_process.py", "srun_ddp.py", "torchrun_ddp.py", "lightning_ddp.py")
with tempfile.TemporaryDirectory() as folder:
    runs = {name: train(name, folder) for name in PROGRAMS}

# %%
# The table compares each run with the single process, and with the first run on two processes:

alone, pair = runs["one_process.py"], runs["srun_ddp.py"]
print(f"{'program':18} {'losses differ by':>17} {'parameters by':>14}  same bits as srun_ddp.py")
for name, run in runs.items():
    losses = (run["losses"] / alone["losses"] - 1).abs().max()
    parameters = (run["parameters"] - alone["parameters"]).abs().max()
    same = all(torch.equal(run[key], pair[key]) for key in run)
    print(f"{name:18} {losses:17.1e} {parameters:14.1e}  {'yes' if same else 'no'}")
    assert losses < 1e-5
    assert same == (name != "one_process.py")

# %%
# The three runs on two processes agree to the last bit, because they add the same numbers in the same order.
# One process adds 64 samples in a different order than two processes with 32 each, so the rounding differs.
#
# How many lines does each program add to the single-process program?

base = Path("one_process.py").read_text().splitlines()
for name in PROGRAMS[1:]:
    lines = Path(name).read_text().splitlines()
    added = [line for line in difflib.ndiff(base, lines) if line.startswith("+ ") and line[2:].strip()]
    print(f"{name:18} {len(lines)} lines, {len(added)} of them not in one_process.py")

# %%
# The four curves look like one:

figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
for (name, run), width in zip(runs.items(), (7, 5, 3, 1), strict=True):
    axes.plot(range(1, len(run["losses"]) + 1), run["losses"], linewidth=width, label=name)
axes.set(xlabel="step", ylabel="loss of 64 samples")
axes.legend()
