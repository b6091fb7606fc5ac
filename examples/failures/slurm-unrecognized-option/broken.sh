#!/bin/bash
# Misspells an option.
sbatch --ntask-per-node=4 --wrap="srun hostname"
