#!/bin/bash
# A job of two hours on a node that is reserved for maintenance in one hour.
job=$(sbatch --parsable --partition=later --time=02:00:00 --wrap="srun hostname")
until squeue --jobs="$job" --format="%T %R" | grep Reserved; do sleep 1; done
scancel "$job"
