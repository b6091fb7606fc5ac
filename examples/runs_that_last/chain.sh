#!/bin/bash
# Submits a chain of jobs from the login node, in the folder of the programs:
#     bash chain.sh
set -eu
name=my-staged  # EDIT: the run; its checkpoint and its model are named after it

submit() { sbatch --parsable --kill-on-invalid-dep=yes "$@"; }

prepare=$(submit --job-name=prepare step.sbatch python pack.py)
train=$(submit --job-name="$name" --dependency="afterok:$prepare,singleton" staged.sbatch)
evaluate=$(submit --job-name=evaluate --dependency="afterok:$train" step.sbatch python evaluate.py "model-$name.pt")
failed=$(submit --job-name=failed --dependency="afternotok:$train" \
  step.sbatch tail "prepare-$prepare.out" "$name-$train.out")

squeue --jobs="$prepare,$train,$evaluate,$failed" --sort=i --format="%6i %10j %8T %E"
