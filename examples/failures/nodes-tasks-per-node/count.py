"""Take the number of ranks from srun, and read that of a node as Slurm writes it, such as 4(x2),3."""

from __future__ import annotations

import os
import re

groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ["SLURM_STEP_TASKS_PER_NODE"])
on_node = [int(tasks) for tasks, times in groups for _ in range(int(times or 1))]
local_ranks = on_node[int(os.environ["SLURM_NODEID"])]
print(f"local rank {os.environ['SLURM_LOCALID']} of {local_ranks}, {os.environ['SLURM_NTASKS']} ranks in all")
