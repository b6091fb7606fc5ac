"""The configuration files of the cluster, as pure functions from a specification to text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from srunbook.cluster._specification import Specification
from srunbook.slurm import compress_hostlist


def choose_plugins(slurm_version: str, *, cgroup_v1: bool) -> dict[str, Any]:
    """Choose the plugins that a version of Slurm can run on this machine, which may have cgroups of version 1.

    >>> choose_plugins("22.05.8", cgroup_v1=True)["proctrack"]
    'proctrack/cgroup'
    >>> choose_plugins("26.05.1", cgroup_v1=False)["cgroup"]
    'disabled'
    """
    if cgroup_v1:
        return {
            "proctrack": "proctrack/cgroup",
            "task": "task/cgroup",
            "gather": "jobacct_gather/cgroup",
            "cgroup": "cgroup/v1",
            "constrain": True,
        }
    year, month = (int(part) for part in slurm_version.split(".")[:2])
    return {
        "proctrack": "proctrack/linuxproc",
        "task": "task/none",
        "gather": "jobacct_gather/linux",
        "cgroup": "disabled" if (year, month) >= (23, 2) else "cgroup/v1",
        "constrain": False,
    }


def node_lines(specification: Specification) -> str:
    """Return the lines of slurm.conf that describe the nodes, one for each group."""
    text = ""
    for name, group in specification.groups.items():
        names = specification.members[name]
        addresses = compress_hostlist(specification.address(node) for node in names)
        words = {
            "NodeAddr": addresses,
            "CPUs": group.cpus,
            "Boards": 1,
            "SocketsPerBoard": 1,
            "CoresPerSocket": group.cpus,
            "ThreadsPerCore": 1,
            "RealMemory": group.memory_mib,
            "Gres": ",".join(group.gres),
            "Feature": ",".join(group.features),
        }
        text += f"NodeName={compress_hostlist(names)}{_joined(words, group.options)}\n"
    return text


def partition_lines(specification: Specification) -> str:
    """Return the lines of slurm.conf that describe the partitions."""
    groups = specification.groups.values()
    least = min(group.memory_mib // group.cpus for group in groups)
    text = f"PartitionName=DEFAULT Nodes=ALL DefMemPerCPU={least} State=UP\n"
    for name, partition in specification.partitions.items():
        computed = {}
        if partition.nodes is not None:
            nodes = specification.nodes_of(partition)
            own_groups = [specification.group_of(node) for node in nodes]
            memory = min(group.memory_mib // group.cpus for group in own_groups)
            computed = {"Nodes": compress_hostlist(nodes), "DefMemPerCPU": memory}
        words = {
            "Default": "YES" if name == specification.default_partition else None,
            **computed,
            "DefaultTime": partition.default_time,
            "MaxTime": partition.max_time,
            "MaxNodes": partition.max_nodes,
            "PriorityTier": partition.priority_tier,
            "PreemptMode": partition.preempt_mode,
            "GraceTime": partition.grace_time,
            "AllowAccounts": ",".join(partition.allow_accounts),
            "QOS": partition.qos,
            "OverSubscribe": "EXCLUSIVE" if partition.exclusive else None,
        }
        text += f"PartitionName={name}{_joined(words, partition.options)}\n"
    return text


def _joined(words: Mapping[str, object], options: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return words of Slurm with their values, leaving out those that have none; Slurm takes each only once.

    >>> _joined({"Type": "a100", "Count": None, "MaxTime": 5}, {"maxtime": "7"})
    ' Type=a100 maxtime=7'
    """
    settings = {word.lower(): (word, value) for word, value in words.items() if value not in (None, "")}
    settings |= {word.lower(): (word, value) for word, value in options.items()}
    return "".join(f" {word}={value}" for word, value in settings.values())


def resource_lines(specification: Specification) -> str:
    """Return the lines of slurm.conf that make generic resources known, and have accounting count them."""
    groups = specification.groups.values()
    names = list(dict.fromkeys(name for group in groups for name, _, _ in group.resources))
    if not names:
        return ""
    counted = dict.fromkeys([f"gres/{name}" for name in names])
    if isinstance(specification.nodes, dict):  # such a cluster may have GPUs of several types
        typed = [f"gres/{name}:{kind}" for group in groups for name, kind, _ in group.resources if kind]
        counted |= dict.fromkeys(typed)
    counted |= dict.fromkeys(limit for limit in specification.limited if limit.startswith("gres/"))
    return f"GresTypes={','.join(names)}\nAccountingStorageTRES={','.join(counted)}\n"


def slurm_conf(specification: Specification, plugins: Mapping[str, Any]) -> str:
    """Return the text of slurm.conf; own lines of the specification come last, where a later one wins."""
    preemption = specification.preemption
    kind = {"partition": "preempt/partition_prio", "qos": "preempt/qos", "none": "preempt/none"}[preemption.by]
    signal = "SlurmctldParameters=preempt_send_user_signal\n" if preemption.send_user_signal else ""
    # Slurm learns at its start what to enforce. A cluster without anything of its own takes any QOS.
    like_a_site = isinstance(specification.nodes, dict) or specification.model_fields_set & {"qos", "accounts", "users"}
    enforced = "associations,limits,qos" if like_a_site else "associations"
    scripts = "".join(
        f"{word}=/etc/slurm/{name}\n" for word, name, text in site_scripts(specification) if word != "TaskProlog"
    )
    return f"""\
ClusterName=srunbook
SlurmctldHost=ctl({specification.address("ctl")})
SlurmUser=slurm
AuthType=auth/munge
# A requeued job waits as long as a credential lives: seconds here, two minutes by default.
AuthInfo=cred_expire=20
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
ProctrackType={plugins["proctrack"]}
TaskPlugin={plugins["task"]}
TaskProlog=/etc/slurm/{"site_tasks.sh" if specification.task_prolog else "task_prolog.sh"}
{scripts}\
JobAcctGatherType={plugins["gather"]}
JobAcctGatherFrequency=task=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce={enforced}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
PreemptType={kind}
PreemptMode={"OFF" if preemption.by == "none" else preemption.mode}
{signal}\
EnforcePartLimits=ALL
ReturnToService=2
SlurmdTimeout=40
MessageTimeout=60
BatchStartTimeout=120
TCPTimeout=10
{resource_lines(specification)}\
{node_lines(specification)}\
{partition_lines(specification)}\
{specification.slurm_conf}"""


def site_scripts(specification: Specification) -> list[tuple[str, str, str]]:
    """Return the scripts of a site: the word of slurm.conf, the name of the file, its text."""
    both = "#!/bin/sh\n/etc/slurm/task_prolog.sh\nexec /etc/slurm/site_task_prolog.sh\n"
    return [
        script
        for script in (
            ("Prolog", "prolog.sh", specification.prolog),
            ("Epilog", "epilog.sh", specification.epilog),
            ("TaskProlog", "site_task_prolog.sh", specification.task_prolog),
            ("TaskProlog", "site_tasks.sh", both if specification.task_prolog else ""),
        )
        if script[2]
    ]


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


def cgroup_conf(plugins: Mapping[str, Any], more: str = "") -> str:
    """Return the text of cgroup.conf; own lines come last.

    >>> print(cgroup_conf(choose_plugins("26.05.1", cgroup_v1=False)), end="")
    CgroupPlugin=disabled
    """
    lines = [f"CgroupPlugin={plugins['cgroup']}"]
    if plugins["cgroup"] != "disabled":
        lines.append("CgroupMountpoint=/sys/fs/cgroup")
    if plugins["constrain"]:
        lines += ["ConstrainRAMSpace=yes", "ConstrainSwapSpace=yes", "AllowedSwapSpace=0"]
    return "\n".join(lines) + "\n" + more


def gres_conf(specification: Specification) -> str:
    """Return the text of gres.conf: GPUs that Slurm schedules and nothing can compute on, and what is only counted.

    >>> print(gres_conf(Specification(nodes={"a": {"count": 2, "gres": ["gpu:a100:4", "gpu:l40s:1"]}})), end="")
    NodeName=node[1-2] Name=gpu Type=a100 File=/dev/gpu[0-3]
    NodeName=node[1-2] Name=gpu Type=l40s File=/dev/gpu4
    """
    text = ""
    for group_name, group in specification.groups.items():
        nodes = compress_hostlist(specification.members[group_name])
        first = 0
        for name, kind, number in group.resources:
            files = None
            if name == "gpu":
                files = f"/dev/gpu{first}" if number == 1 else f"/dev/gpu[{first}-{first + number - 1}]"
                first += number
            count = None if files else number
            text += f"NodeName={nodes} Name={name}" + _joined({"Type": kind, "File": files, "Count": count}) + "\n"
    return text + specification.gres_conf


def hosts(specification: Specification) -> str:
    """Return the text of /etc/hosts, the same on every machine of the cluster."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{specification.address(machine)} {machine}" for machine in specification.machines]
    return "\n".join(lines) + "\n"
