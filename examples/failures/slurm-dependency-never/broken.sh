#!/bin/bash
# The second job waits for the success of the first, which fails.
first=$(sbatch --parsable --time=1 --wrap="exit 1")
second=$(sbatch --parsable --dependency="afterok:$first" --wrap="srun hostname")
until squeue --jobs="$second" --format="%T %R" | grep Never; do sleep 1; done
scancel "$second"
