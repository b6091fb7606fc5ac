"""
Where a step's time goes
========================

Two ranks each write a trace while they train, and ``profile_summary.py`` adds up the times.
The model is wide, so that it has many gradients to send.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from srunbook import simulate

folder = tempfile.TemporaryDirectory()
program = ["full/train_traffic.py", "--epochs=1", "--max-steps=24", "--days=7", "--hidden=256", "--profile"]
options = [f"--results={folder.name}/results", f"--data-dir={folder.name}"]
result = simulate.run([sys.executable, *program, *options], nodes=2, timeout=120)
assert result.returncode == 0, result.failure

summary = [sys.executable, "full/profile_summary.py", f"{folder.name}/results"]
printed = subprocess.run(summary, capture_output=True, text=True, check=True).stdout
print(printed)

assert "bottleneck: " in printed

# %%
# A step's all-reduce has two parts.
# The first part overlaps with the computation of earlier layers' gradients, and costs no extra time.
# The rank waits for the second part, which is red.
# Both ranks ran on one machine, so the picture says nothing about a cluster.
# To profile your cluster, run ``profile.sbatch`` there.

picture = plt.imread(Path(folder.name, "results", "profile.png"))
height, width = picture.shape[:2]
figure = plt.figure(figsize=(width / 150, height / 150), dpi=150)
figure.figimage(picture)

folder.cleanup()
