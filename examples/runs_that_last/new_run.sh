#!/bin/bash
# Gives a run its own folder, notes what runs there, and submits it. In the folder of your programs:
#     bash new_run.sh wide staged.sbatch
set -eu
name=$1
run="runs/$name"
mkdir -p runs
mkdir "$run"  # fails if there is a run of this name

cp -- *.py *.sbatch "$run"  # EDIT: your programs and settings
ln -s "$PWD/shards" "$run"  # EDIT: your data
pip freeze >"$run/packages.txt"  # EDIT: or uv pip freeze, conda list
if git rev-parse HEAD >/dev/null; then  # under git: the commit, and your changes since
  { git log -1; git diff HEAD; } >"$run/git.txt"
fi

cd "$run"
job=$(sbatch --parsable --job-name="$name" "${@:2}")
scontrol show job "$job" >"job-$job.txt"
echo "job $job in $run"
