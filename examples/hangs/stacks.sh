#!/bin/bash
# Shows where the Python programs on all nodes are: bash stacks.sh JOBID
# shellcheck disable=SC2016  # the nodes expand it
srun --jobid="$1" --overlap --nodes=4 --ntasks-per-node=1 --label \
  bash -c 'for pid in $(pgrep -u "$USER" python); do py-spy dump --pid "$pid"; done'
