"""
A week on 64 nodes, saved in the foreground and in the background
=================================================================

``week.py`` simulates weeks with random failures, and compares intervals between saves.
"""

import os
import runpy
import tempfile
from pathlib import Path

program = Path("week.py").resolve()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)  # the program leaves its picture here
    runpy.run_path(str(program))
    os.chdir(program.parent)

# %%
# The lines are Daly's formula, the points are the means of all weeks, and eight of ten weeks lie in the shaded area.
# A star is at the interval that Young's formula gives.
