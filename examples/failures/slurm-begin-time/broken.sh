#!/bin/bash
# A job that is to start in an hour.
job=$(sbatch --parsable --begin=now+1hour --wrap="srun hostname")
until squeue --jobs="$job" --format="%T %R" | grep Begin; do sleep 1; done
scancel "$job"
