#!/bin/bash
# Asks for two nodes in a partition that gives one to each job.
sbatch --partition=small --nodes=2 --wrap="srun hostname"
