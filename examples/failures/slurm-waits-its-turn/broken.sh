#!/bin/bash
# Three jobs for one node: the first runs, the second is next, the third comes later.
first=$(sbatch --parsable --partition=one --exclusive --wrap="sleep 60")
second=$(sbatch --parsable --partition=one --exclusive --wrap="srun hostname")
third=$(sbatch --parsable --partition=one --exclusive --wrap="srun hostname")
until squeue --jobs="$second" --format="%T %R" | grep Resources; do sleep 1; done
squeue --jobs="$third" --format="%T %R" --noheader
scancel "$first" "$second" "$third"
