#!/bin/bash
# Asks for a task with more CPUs than any node has; then starts a step with more tasks than the job has CPUs.
sbatch --cpus-per-task=4096 --wrap="srun hostname"
salloc --nodes=1 --ntasks=1 srun --ntasks=64 hostname
