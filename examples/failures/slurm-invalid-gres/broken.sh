#!/bin/bash
# Asks for GPUs by a name that this cluster does not have: here they are called gpu.
sbatch --nodes=1 --gres=a100:1 --wrap="srun hostname"
