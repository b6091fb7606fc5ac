#!/bin/bash
[ -n "${SLURM_STEP_TASKS_PER_NODE:-}" ] || exit 0
# All nodes share this machine's processors: a thread of OpenMP that spins while it waits holds up those it waits for.
[ -n "${OMP_WAIT_POLICY:-}" ] || echo "export OMP_WAIT_POLICY=passive"
node=${SLURM_NODEID:-0}
IFS=, read -ra groups <<<"$SLURM_STEP_TASKS_PER_NODE"
for group in "${groups[@]}"; do # 4(x2),3 means 4 tasks on each of two nodes, then 3
    tasks=${group%%(*}
    repeat=1
    [[ $group =~ \(x([0-9]+)\) ]] && repeat=${BASH_REMATCH[1]}
    ((node < repeat)) && break
    ((node -= repeat))
done

# Nodes may claim more CPUs than this machine has, which task/affinity cannot bind to. So that a forgotten
# --cpus-per-task shows all the same, a task sees as many CPUs as it has: those of the node divided by the tasks on it.
share=$((${SLURM_CPUS_ON_NODE:-0} / tasks))
((share > 0)) || share=1
machine=()
IFS=, read -ra ranges < <(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
for range in "${ranges[@]}"; do
    for ((cpu = ${range%-*}; cpu <= ${range#*-}; cpu++)); do machine+=("$cpu"); done
done
if [ -n "${SLURM_TASK_PID:-}" ] && [ "${SLURM_CPU_BIND_TYPE:-}" != none ] && ((share < ${#machine[@]})); then
    number=${HOSTNAME//[!0-9]/} # so that the tasks of all nodes are spread over the machine
    first=$((10#${number:-0} * tasks * share + ${SLURM_LOCALID:-0} * share))
    bound=()
    for ((cpu = first; cpu < first + share; cpu++)); do bound+=("${machine[cpu % ${#machine[@]}]}"); done
    (IFS=, && taskset --cpu-list --pid "${bound[*]}" "$SLURM_TASK_PID" >/dev/null)
fi

# As many CPU devices of JAX as this task has GPUs: those of the node divided by the tasks on it, one without GPUs.
[ -n "${JAX_NUM_CPU_DEVICES:-}" ] && exit 0
devices=$((${SLURM_GPUS_ON_NODE:-0} / tasks))
((devices > 0)) || devices=1
echo "export JAX_NUM_CPU_DEVICES=$devices"
