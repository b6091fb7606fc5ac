#!/bin/bash
# Submits ddp_2node_cpu.sbatch from the current folder, and prints where the results will be:
#     bash run_multinode.sh --nodes 4

set -euo pipefail
SCRIPT="ddp_2node_cpu.sbatch"

usage() {
  cat <<END
Usage: bash run_multinode.sh [options] [-- options of train_traffic.py]

Submits $SCRIPT from the current folder.

  --nodes N          number of nodes (default: 2)
  --epochs N         number of epochs (default: 10)
  --partition NAME   partition (default: that of the script)
  --account NAME     account (default: that of the script)
  --time LIMIT       time limit, such as 30, 00:30:00 or 1-00:00:00 (default: that of the script)
  --dry-run          print the command, and submit nothing
  --wait             wait for the job, write sacct_summary.txt, and end with the job's status
  --help             show this

Example: bash run_multinode.sh --nodes 4 --epochs 20 --wait
END
}

refuse() {
  echo "error: $1" >&2
  exit 2
}

NODES=2 EPOCHS=10 PARTITION="" ACCOUNT="" TIME="" DRY_RUN="" WAIT="" MORE=()
while (($#)); do
  case "$1" in
  --nodes | --epochs | --partition | --account | --time)
    (($# > 1)) || refuse "$1 needs a value, as in: $1 4"
    name="${1#--}"
    printf -v "${name^^}" %s "$2"
    shift 2
    ;;
  --dry-run) DRY_RUN=yes && shift ;;
  --wait) WAIT=yes && shift ;;
  --help | -h) usage && exit 0 ;;
  --) shift && MORE=("$@") && break ;;
  *) refuse "unknown option '$1'; bash run_multinode.sh --help lists them" ;;
  esac
done

# Refuse nonsense here: Slurm would find it after hours in the queue, or never.
[[ "$NODES" =~ ^[1-9][0-9]{0,3}$ ]] || refuse "--nodes '$NODES': give a whole number from 1 on, as in --nodes 4"
[[ "$EPOCHS" =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--epochs '$EPOCHS': give a whole number from 1 on, as in --epochs 20"
[[ "$TIME" =~ ^([0-9]+-)?[0-9]+(:[0-9]{1,2}){0,2}$|^$ ]] || refuse "--time '$TIME': give minutes or hours:minutes:seconds, as in --time 00:30:00"
for name in PARTITION ACCOUNT; do
  [[ "${!name}" =~ ^[A-Za-z0-9_.,-]*$ ]] || refuse "--${name,,} '${!name}': a name has letters, digits and _ . -"
done
[[ -f "$SCRIPT" ]] || refuse "there is no $SCRIPT here: change into the folder that holds the files of the guide"

OPTIONS=(--parsable "--nodes=$NODES")
[[ -z "$PARTITION" ]] || OPTIONS+=("--partition=$PARTITION")
[[ -z "$ACCOUNT" ]] || OPTIONS+=("--account=$ACCOUNT")
[[ -z "$TIME" ]] || OPTIONS+=("--time=$TIME")
COMMAND=(sbatch "${OPTIONS[@]}" "$SCRIPT" "--epochs=$EPOCHS" "${MORE[@]}")
if [[ -n "$DRY_RUN" ]]; then
  echo "would run: ${COMMAND[*]@Q}"
  exit 0
fi
command -v sbatch >/dev/null || refuse "there is no sbatch here: run me on a login node of your cluster"

mkdir -p results
JOB="$("${COMMAND[@]}")" || exit 1 # sbatch has said why
JOB="${JOB%%;*}"
RESULTS="results/ddp_cpu_$JOB"
echo "job:     $JOB"
echo "results: $RESULTS"
echo "log:     ddp_cpu_$JOB.out, and as a link results/ddp_cpu_$JOB.out once the job runs"
if [[ -z "$WAIT" ]]; then
  echo "next:    bash verify_multinode.sh $JOB"
  exit 0
fi

# Accounting says RUNNING while the job runs, so wait until it has ended and accounting knows.
UNSEEN=0
while true; do
  IFS='|' read -r STATE STATUS NAME < <(
    sacct --noheader --parsable2 --allocations --jobs="$JOB" --format=State,ExitCode,JobName 2>/dev/null
  ) || true # read fails where accounting knows nothing of the job yet
  # A job is called "allocation", and some of its nodes are missing, until accounting has heard of its start.
  if [[ "$NAME" != allocation ]]; then
    [[ "${STATE:-PENDING}" =~ ^(PENDING|RUNNING|REQUEUED|COMPLETING|SUSPENDED|RESIZING) ]] || break
  fi
  [[ -n "$(squeue --noheader --jobs="$JOB" --format=%T 2>/dev/null)" ]] || UNSEEN=$((UNSEEN + 1))
  if ((UNSEEN > 30)); then
    echo "error: job $JOB is not in the queue, and accounting does not say how it ended" >&2
    exit 1
  fi
  sleep 2
done
mkdir -p "$RESULTS"
sacct --parsable2 --jobs="$JOB" --format=JobID,JobIDRaw,State,ExitCode,NNodes,NTasks,Elapsed,NodeList \
  >"$RESULTS/.sacct_summary.txt"
mv "$RESULTS/.sacct_summary.txt" "$RESULTS/sacct_summary.txt" # whole or not at all
echo "state:   $STATE, exit code $STATUS"
echo "next:    bash verify_multinode.sh $JOB"
CODE="${STATUS%%:*}" SIGNAL="${STATUS##*:}"
if ((SIGNAL)); then exit $((128 + SIGNAL)); fi
if ((CODE == 0)) && [[ "$STATE" != COMPLETED ]]; then exit 1; fi # such as CANCELLED 0:0
exit "$CODE"
