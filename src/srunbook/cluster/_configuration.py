"""The configuration files of the cluster, as pure functions from a specification to text."""

from __future__ import annotations

from collections.abc import Mapping
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


def _line(kind: str, name: str, words: Mapping[str, object], more: str = "") -> str:
    r"""Return a line of a configuration file, without words that have no value or that `more` sets.

    >>> _line("NodeName", "node1", {"CPUs": 4, "Gres": "", "Weight": 1}, "weight=7 Port=9")
    'NodeName=node1 CPUs=4 weight=7 Port=9\n'
    """
    theirs = {word.partition("=")[0].lower() for word in more.split()}
    ours = [
        f"{word}={value}" for word, value in words.items() if value not in (None, "") and word.lower() not in theirs
    ]
    return " ".join(filter(None, [f"{kind}={name}", *ours, more])) + "\n"


def node_lines(specification: Specification) -> str:
    """Return the lines of slurm.conf that describe the nodes: each group, and a set of its name."""
    text = ""
    for name, group in specification.groups.items():
        nodes = compress_hostlist(specification.members[name])
        words = {
            "NodeAddr": compress_hostlist(specification.address(node) for node in specification.members[name]),
            "CPUs": group.cpus,
            "Boards": 1,
            "SocketsPerBoard": 1,
            "CoresPerSocket": group.cpus,
            "ThreadsPerCore": 1,
            "RealMemory": group.memory_mib,
            "Gres": ",".join(group.gres),
            "Feature": ",".join(group.features),
        }
        text += _line("NodeName", nodes, words, group.options)
        text += _line("NodeSet", name, {"Nodes": nodes}) if isinstance(specification.nodes, dict) else ""
    return text


def like_a_site(specification: Specification) -> bool:
    """Return whether a cluster has nodes or accounts of its own; another one takes any QOS, and counts no GPU types."""
    return isinstance(specification.nodes, dict) or bool(specification.sacctmgr)


def resource_lines(specification: Specification) -> str:
    """Return the lines of slurm.conf that make generic resources known, and have accounting count them."""
    resources = [resource for group in specification.groups.values() for resource in group.resources]
    names = dict.fromkeys(name for name, _, _ in resources)
    counted = [f"gres/{name}" for name in names]
    if like_a_site(specification):
        counted += dict.fromkeys(f"gres/{name}:{kind}" for name, kind, _ in resources if kind)
    return f"GresTypes={','.join(names)}\nAccountingStorageTRES={','.join(counted)}\n" if names else ""


def slurm_conf(specification: Specification, plugins: Mapping[str, Any]) -> str:
    """Return the text of slurm.conf; a setting among the specification's own lines replaces the cluster's own."""
    settings = f"""\
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
TaskProlog=/etc/slurm/task_prolog.sh
JobAcctGatherType={plugins["gather"]}
JobAcctGatherFrequency=task=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce={"associations,limits,qos" if like_a_site(specification) else "associations"}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
ReturnToService=2
SlurmdTimeout=40
MessageTimeout=60
BatchStartTimeout=120
TCPTimeout=10
{resource_lines(specification)}"""
    theirs = {line.partition("=")[0].strip().lower() for line in specification.slurm_conf.splitlines()}
    ours = [line for line in settings.splitlines(True) if line.partition("=")[0].lower() not in theirs]
    least = min(group.memory_mib // group.cpus for group in specification.groups.values())
    partitions = f"PartitionName=DEFAULT Nodes=ALL DefMemPerCPU={least} State=UP\n{specification.partitions}"
    return "".join(ours) + node_lines(specification) + partitions + specification.slurm_conf


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
    NodeName=node[1-2] Name=gpu Type=l40s File=/dev/gpu[4-4]
    """
    text = ""
    for group_name, group in specification.groups.items():
        nodes = compress_hostlist(specification.members[group_name])
        first = 0
        for name, kind, number in group.resources:
            amount = {"File": f"/dev/gpu[{first}-{first + number - 1}]"} if name == "gpu" else {"Count": number}
            first += number if name == "gpu" else 0
            text += _line("NodeName", nodes, {"Name": name, "Type": kind, **amount})
    return text + specification.gres_conf


def hosts(specification: Specification) -> str:
    """Return the text of /etc/hosts, the same on every machine of the cluster."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines += [f"{specification.address(machine)} {machine}" for machine in specification.machines]
    return "\n".join(lines) + "\n"
