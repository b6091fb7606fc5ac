#!/bin/bash
# Two jobs of an account that may use two CPUs at a time.
first=$(sbatch --parsable --account=small-group --cpus-per-task=2 --wrap="sleep 60")
second=$(sbatch --parsable --account=small-group --cpus-per-task=2 --wrap="srun hostname")
until squeue --jobs="$first,$second" --format="%T %R" | grep AssocGrp; do sleep 1; done
scancel "$first" "$second"
