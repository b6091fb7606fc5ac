#!/bin/bash
# Writes the log into a folder that does not exist, where Slurm may not make it.
job=$(sbatch --parsable --wait --output=/results/%j.out --wrap="srun hostname")
until sacct --jobs="$job" --format=JobID%12,State,ExitCode | grep 0:53; do sleep 1; done
scontrol show job "$job" | grep Reason
