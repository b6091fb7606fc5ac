#!/bin/bash
# Two jobs of a quality of service that runs one job of each user at a time.
first=$(sbatch --parsable --qos=single --wrap="sleep 60")
second=$(sbatch --parsable --qos=single --wrap="srun hostname")
until squeue --jobs="$second" --format="%T %R" | grep QOSMax; do sleep 1; done
scancel "$first" "$second"
