"""Each process takes its share of the CPUs that it may use.

srunbook simulate --nodes 1 --ntasks-per-node 1 -- torchrun --standalone --nproc-per-node 2 fixed.py
"""

from __future__ import annotations

import os
import sys

import torch

# Better in the job script, where it also reaches other libraries:
#     export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / PROCESSES))
granted = 4  # a job script has it in SLURM_CPUS_PER_TASK
torch.set_num_threads(max(1, granted // int(os.environ["LOCAL_WORLD_SIZE"])))
# Text and newline in one write: the processes of a node share the log.
sys.stdout.write(f"rank {os.environ['RANK']} computes with {torch.get_num_threads()} threads\n")
