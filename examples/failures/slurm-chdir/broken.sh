#!/bin/bash
# Submits from a folder that exists on this machine alone.
mkdir -p /tmp/experiment
cd /tmp/experiment || exit
job=$(sbatch --parsable --output="$HOME/chdir_%j.out" --wait --wrap="srun pwd")
cat "$HOME/chdir_$job.out"
