"""Count the ranks from the number of tasks on a node."""

from __future__ import annotations

import os

nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
local_ranks = int(os.environ["SLURM_TASKS_PER_NODE"])  # The mistake: it is a number on one node only.
print(f"local rank {os.environ['SLURM_LOCALID']} of {local_ranks}, {nodes * local_ranks} ranks in all")
