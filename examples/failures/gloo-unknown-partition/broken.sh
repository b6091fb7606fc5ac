#!/bin/bash
# Submits to a partition that another cluster has.
sbatch --partition=gpu-node --nodes=2 --wrap="srun hostname"
