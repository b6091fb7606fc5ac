#!/bin/bash
# An array of four tasks, of which one may run at a time.
job=$(sbatch --parsable --array=0-3%1 --wrap="sleep 60")
until squeue --jobs="$job" --format="%T %R" | grep ArrayTask; do sleep 1; done
scancel "$job"
