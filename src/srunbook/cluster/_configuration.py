"""The configuration files of the cluster, as pure functions from a specification to text."""

from __future__ import annotations

from dataclasses import dataclass

from srunbook.cluster._specification import Specification

USER = "alice"
"""The ordinary user, who submits jobs."""

SECOND_USER = "bob"
"""Another ordinary user, who must not see what the first one does."""

USER_IDS = {USER: 20001, SECOND_USER: 20002}
"""Numbers of the users: high ones, so that they are nobody on the host."""


@dataclass(frozen=True)
class Plugins:
    """The plugins that shape how jobs are tracked, signalled and limited.

    Args:
        proctrack: How Slurm finds a job's processes.
        task: What confines a task.
        gather: Where the accounting of running steps comes from.
        cgroup: Value of `CgroupPlugin`.
        constrain: Whether memory limits are enforced.
    """

    proctrack: str
    task: str
    gather: str
    cgroup: str
    constrain: bool


def choose_plugins(slurm_version: str, *, cgroup_v1: bool) -> Plugins:
    """Choose the plugins that a generation can run on this machine.

    Args:
        slurm_version: Version of Slurm in the root, such as 22.05.8.
        cgroup_v1: Whether the machine has the version 1 hierarchies mounted that Slurm uses.

    >>> choose_plugins("22.05.8", cgroup_v1=True).proctrack
    'proctrack/cgroup'
    >>> choose_plugins("26.05.1", cgroup_v1=False).cgroup
    'disabled'
    """
    if cgroup_v1:
        return Plugins("proctrack/cgroup", "task/cgroup", "jobacct_gather/cgroup", "cgroup/v1", constrain=True)
    year, month = (int(part) for part in slurm_version.split(".")[:2])
    plugin = "disabled" if (year, month) >= (23, 2) else "cgroup/v1"
    return Plugins("proctrack/linuxproc", "task/none", "jobacct_gather/linux", plugin, constrain=False)


def node_range(nodes: int) -> str:
    """Return the names of the nodes in Slurm's short form.

    >>> node_range(4), node_range(1)
    ('node[1-4]', 'node1')
    """
    return "node1" if nodes == 1 else f"node[1-{nodes}]"


def slurm_conf(specification: Specification, plugins: Plugins) -> str:
    """Return the text of slurm.conf."""
    nodes = node_range(specification.nodes)
    gpus = specification.gpus_per_node
    gres = f" Gres=gpu:{specification.features[0]}:{gpus}" if gpus else ""
    features = f" Feature={','.join(specification.features)}" if specification.features else ""
    types = "GresTypes=gpu\nAccountingStorageTRES=gres/gpu\n" if gpus else ""
    address = "10.77.0.1" if specification.nodes == 1 else f"10.77.0.[1-{specification.nodes}]"
    memory = specification.memory_mib
    return f"""\
ClusterName=srunbook
SlurmctldHost=ctl({specification.address("ctl")})
SlurmUser=slurm
AuthType=auth/munge
# A requeued job waits as long as a credential lives: seconds here, two minutes by default.
AuthInfo=cred_expire=10
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
ProctrackType={plugins.proctrack}
TaskPlugin={plugins.task}
TaskProlog=/etc/slurm/task_prolog.sh
JobAcctGatherType={plugins.gather}
JobAcctGatherFrequency=task=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce=associations
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
ReturnToService=2
SlurmdTimeout=20
MessageTimeout=30
{types}\
NodeName={nodes} NodeAddr={address} CPUs={specification.cpus} Boards=1 SocketsPerBoard=1 \
CoresPerSocket={specification.cpus} ThreadsPerCore=1 RealMemory={memory}{gres}{features}
PartitionName=DEFAULT Nodes=ALL DefMemPerCPU={memory // specification.cpus} State=UP
PartitionName=batch Default=YES MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=OFF
PartitionName=gpu MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=OFF
PartitionName=cpu MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=OFF
PartitionName=debug MaxTime=00:30:00 PriorityTier=20 PreemptMode=OFF
PartitionName=preempt MaxTime=1-00:00:00 PriorityTier=1 PreemptMode=REQUEUE
"""


def slurmdbd_conf() -> str:
    """Return the text of slurmdbd.conf: the database is reached by its socket only."""
    return """\
AuthType=auth/munge
DbdHost=ctl
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""


def cgroup_conf(plugins: Plugins) -> str:
    """Return the text of cgroup.conf.

    >>> print(cgroup_conf(choose_plugins("26.05.1", cgroup_v1=False)), end="")
    CgroupPlugin=disabled
    """
    lines = [f"CgroupPlugin={plugins.cgroup}"]
    if plugins.cgroup != "disabled":
        lines.append("CgroupMountpoint=/sys/fs/cgroup")
    if plugins.constrain:
        lines += ["ConstrainRAMSpace=yes", "ConstrainSwapSpace=yes", "AllowedSwapSpace=0"]
    return "\n".join(lines) + "\n"


def gres_conf(specification: Specification) -> str:
    """Return the text of gres.conf: GPUs that Slurm schedules and nothing can compute on.

    >>> print(gres_conf(Specification(nodes=2, gpus_per_node=4)), end="")
    NodeName=node[1-2] Name=gpu Type=a100 File=/dev/gpu[0-3]
    """
    gpus = specification.gpus_per_node
    if not gpus:
        return ""
    files = "/dev/gpu0" if gpus == 1 else f"/dev/gpu[0-{gpus - 1}]"
    return f"NodeName={node_range(specification.nodes)} Name=gpu Type={specification.features[0]} File={files}\n"


def hosts(specification: Specification) -> str:
    """Return the text of /etc/hosts, the same on every machine of the cluster."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{specification.address(machine)} {machine}" for machine in specification.machines]
    return "\n".join(lines) + "\n"


def task_prolog() -> str:
    """Return the TaskProlog: as many CPU devices of JAX as a task has GPUs, one without GPUs.

    What it prints as `export NAME=value` becomes part of the task's environment. It leaves a value alone that the
    job has set, and says nothing in the batch shell, which is no task of a step.
    """
    return """\
#!/bin/bash
# As many CPU devices of JAX as this task has GPUs: those of the node divided by the tasks on it, one without GPUs.
[ -n "${JAX_NUM_CPU_DEVICES:-}" ] && exit 0
[ -n "${SLURM_STEP_TASKS_PER_NODE:-}" ] || exit 0
node=${SLURM_NODEID:-0}
IFS=, read -ra groups <<<"$SLURM_STEP_TASKS_PER_NODE"
for group in "${groups[@]}"; do # 4(x2),3 means 4 tasks on each of two nodes, then 3
    tasks=${group%%(*}
    repeat=1
    [[ $group =~ \\(x([0-9]+)\\) ]] && repeat=${BASH_REMATCH[1]}
    ((node < repeat)) && break
    ((node -= repeat))
done
devices=$((${SLURM_GPUS_ON_NODE:-0} / tasks))
((devices > 0)) || devices=1
echo "export JAX_NUM_CPU_DEVICES=$devices"
"""
