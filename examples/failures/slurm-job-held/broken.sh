#!/bin/bash
# A job on a node where the script that the site runs before each job fails; and one that its user holds.
job=$(sbatch --parsable --partition=repair --wrap="srun hostname")
until squeue --jobs="$job" --format="%T %R" | grep held; do sleep 1; done
held=$(sbatch --parsable --hold --wrap="srun hostname")
squeue --jobs="$held" --format="%T %R" --noheader
scancel "$job" "$held"
