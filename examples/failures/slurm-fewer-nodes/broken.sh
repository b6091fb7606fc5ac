#!/bin/bash
# Asks for two nodes and one task.
sbatch --nodes=2 --ntasks=1 --wrap="srun hostname"
