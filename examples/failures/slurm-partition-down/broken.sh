#!/bin/bash
# Asks for a partition that is down, and for one that is being emptied.
job=$(sbatch --parsable --partition=closed --wrap="srun hostname")
until squeue --jobs="$job" --format="%T %R" | grep Partition; do sleep 1; done
scancel "$job"
sbatch --partition=draining --wrap="srun hostname"
