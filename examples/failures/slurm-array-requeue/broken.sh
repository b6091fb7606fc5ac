#!/bin/bash
# Two members of an array say what scontrol requeue $SLURM_JOB_ID would start again.
# shellcheck disable=SC2016  # each member expands its own numbers
sbatch --wait --nodes=1 --array=0-1 --output=array_%a.out --wrap='
if [ "$SLURM_JOB_ID" = "$SLURM_ARRAY_JOB_ID" ]; then what="the whole array"; else what="itself"; fi
echo "member $SLURM_ARRAY_TASK_ID requeues $what"'
cat array_0.out array_1.out
