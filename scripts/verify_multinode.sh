#!/usr/bin/env bash
# Check that a run of ddp_2node_cpu.sbatch did its work.
# Give the number of the job, or its folder of results; without either, this takes the newest folder:
#     bash verify_multinode.sh 17
#     bash verify_multinode.sh results/ddp_cpu_17
#     bash verify_multinode.sh
# Options of `srunbook verify`, such as --json, come first.
set -euo pipefail

VENV="${VENV:-$HOME/torch-env}" # EDIT: where srunbook is installed, unless it is on PATH
PATH="$PATH:$VENV/bin"

if ! command -v srunbook >/dev/null; then
  {
    echo "verify_multinode.sh: the command srunbook is missing: it is not on PATH, and not in $VENV/bin."
    echo "Install it from its checkout, as in: $VENV/bin/pip install -e path/to/srunbook"
    echo "Or say where it is, as in: VENV=\$HOME/my-env bash $0 $*"
  } >&2
  exit 127
fi

if (($# == 0)); then
  shopt -s nullglob
  folders=(results/ddp_cpu_*/)
  if ((${#folders[@]} == 0)); then
    echo "verify_multinode.sh: there is no results/ddp_cpu_*/ here; give a job id, as in: bash $0 17" >&2
    exit 2
  fi
  set -- "$(printf '%s\n' "${folders[@]%/}" | sort --version-sort | tail -n 1)"
fi
exec srunbook verify --backend "${BACKEND:-gloo}" \
  --require metrics.csv --require timings.csv --require checkpoint_latest.pth "$@"
