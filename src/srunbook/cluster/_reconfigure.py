"""Change a cluster that is up: what Slurm reads again without going down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from srunbook.cluster._associations import as_script, changes
from srunbook.cluster._commands import capture
from srunbook.cluster._configuration import Plugins
from srunbook.cluster._daemons import NODE, last_words, log_sizes
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._room import reported
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State, locked, running_state
from srunbook.cluster._trial import judge
from srunbook.cluster._writing import slurm_files, write_texts
from srunbook.slurm import expand_hostlist

CHANGEABLE = (
    *("partitions", "preemption", "qos", "accounts", "slurm_conf", "cgroup_conf", "gres_conf"),
    *("prolog", "epilog", "task_prolog"),
)
"""Fields that may change while a cluster is up."""

ALIVE = "pgrep -x {0} >/dev/null || {0}"
"""Starts a daemon where it has ended."""

READ_AGAIN = "timeout 30 scontrol reconfigure && timeout 30 sinfo --noheader >/dev/null"
"""Ends in time also where the controller dies over it, which these commands would wait for."""


@reported()
def reconfigure(specification: Specification, *, say: Say = say_nothing) -> State:
    """Change partitions, limits, accounts and Slurm's own lines of a cluster that is up; its jobs go on.

    Args:
        specification: What it is to be from now on. What cannot change stays as it is where it is not set here.
        say: Where progress is told.

    Returns:
        The record of the cluster.

    Raises:
        SpecificationError: It differs in what cannot change, or a job needs more than a new limit allows.
        ClusterError: Slurm refuses it; the message has Slurm's words, and the configuration is as it was.
    """
    with locked(specification.name):
        state = running_state(specification.name)
        before = state.specification
        specification = adopted(before, specification)
        fields = Specification.model_fields
        differing = [name for name in fields if getattr(before, name) != getattr(specification, name)]
        if fixed := [name for name in differing if name not in CHANGEABLE]:
            raise SpecificationError(
                f"{', '.join(fixed)} cannot change while cluster {before.name!r} is up: `srunbook cluster down`, "
                f"then `up`. These can: {', '.join(CHANGEABLE)}"
            )
        if not differing:
            say(f"cluster {before.name!r} is so already")
            return state
        if problems := list(too_low(before, specification, jobs(state))):
            raise SpecificationError("\n".join(problems))
        first, then = changes(before, specification)
        try:
            _account(state, as_script(first))
            _install(state, specification)
            try:
                _account(state, as_script(then))
            except ClusterError:
                _install(state, before)
                raise
        except ClusterError:
            undone = [command for part in changes(specification, before) for command in part]
            _account(state, as_script(undone).replace("set -e\n", ""), wanted=False)
            raise
        state.specification = specification
        state.save()
        say(f"changed: {', '.join(differing)}")
        return state


def adopted(before: Specification, after: Specification) -> Specification:
    """Return a specification that keeps what cannot change and it does not set, such as options that `up` was given.

    >>> adopted(Specification(nodes=2), Specification(accounts={"a": {}})).node_names
    ('node1', 'node2')
    """
    kept = before.model_dump(by_alias=True, exclude_defaults=True, exclude=set(CHANGEABLE))
    return Specification(**kept | after.model_dump(by_alias=True, exclude_unset=True))


def jobs(state: State) -> list[dict[str, str]]:
    """Return the jobs that run: number, user, partition, QOS, account, time limit, nodes, resources."""
    names = {"job": "JobID", "user": "UserName", "partition": "Partition", "qos": "QOS", "account": "Account"}
    names |= {"limit": "TimeLimit", "nodes": "NodeList", "tres": "tres-alloc"}
    form = ",".join(f"{word}:|" for word in names.values())
    command = ["squeue", "--noheader", "--all", "--states=RUNNING", f"--Format={form}"]
    result = capture(state, command, user=None)
    return [dict(zip(names, line.split("|"), strict=False)) for line in result.stdout.splitlines()]


def too_low(before: Specification, after: Specification, running: list[dict[str, str]]) -> Iterator[str]:
    """Yield a sentence for each job that runs and needs what a new specification takes away.

    Args:
        before: The cluster as it is.
        after: The cluster as it is to be.
        running: What `jobs` returned.
    """
    for job in running:
        who = f"job {job['job']} of {job['user']} runs in partition {job['partition']}"
        then = "Wait for it, cancel it, or leave the limit as it is"
        partition, qos = after.partitions.get(job["partition"]), after.qos.get(job["qos"])
        if partition is None:
            yield f"{who}, which is no longer there. {then}"
            continue
        nodes = expand_hostlist(job["nodes"])
        if gone := [node for node in nodes if node not in after.nodes_of(partition)]:
            yield f"{who} on {gone[0]}, which the partition no longer has. {then}"
        if partition.max_nodes is not None and len(nodes) > partition.max_nodes:
            yield f"{who} on {len(nodes)} nodes, and max_nodes is {partition.max_nodes}. {then}"
        limits = {f"partitions.{job['partition']}.max_time": partition.max_time}
        if qos and qos.max_wall:
            limits[f"qos.{job['qos']}.max_wall"] = qos.max_wall
        for name, limit in limits.items():
            if seconds(job["limit"]) > seconds(limit):
                yield f"{who} with a time limit of {job['limit']}, and {name} is {limit}. {then}"
        yield from (f"{who} {text}. {then}" for text in _resources(after, job))
        for what, now, known in (("QOS", job["qos"], after.qos), ("account", job["account"], after.accounts)):
            if now not in known and now in (before.qos if what == "QOS" else before.accounts):
                yield f"{who} with the {what} {now}, which is no longer there. {then}"


def _resources(after: Specification, job: dict[str, str]) -> Iterator[str]:
    """Yield how much a job has of each resource of which a new limit, on its QOS or account, allows less."""
    qos, account = after.qos.get(job["qos"]), after.accounts.get(job["account"])
    limits = {f"accounts.{job['account']}.grp_tres": account.grp_tres} if account else {}
    for name in ("max_tres_per_job", "max_tres_per_user", "grp_tres") if qos else ():
        limits[f"qos.{job['qos']}.{name}"] = getattr(qos, name)
    found = tres(job["tres"])
    for place, limit in limits.items():
        for name, most in limit.items():
            if found.get(name, 0) > most:
                yield f"with {name}={found[name]:.0f}, and {place} is {most}"


def tres(text: str) -> dict[str, float]:
    """Read resources as Slurm writes them, memory in MiB.

    >>> tres("cpu=2,mem=1.50G,gres/gpu:a100=1")
    {'cpu': 2.0, 'mem': 1536.0, 'gres/gpu:a100': 1.0}
    """
    units = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
    parts = re.findall(r"([^=,]+)=([0-9.]+)([KMGT]?)", text)
    return {name: float(number) * units.get(unit, 1) for name, number, unit in parts}


def seconds(limit: str) -> float:
    """Read a time limit as Slurm writes it.

    >>> seconds("1-00:00:30"), seconds("10:00"), seconds("UNLIMITED")
    (86430, 600, inf)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if not match:
        return float("inf")
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _account(state: State, script: str, *, wanted: bool = True) -> None:
    """Have sacctmgr run the commands of a script.

    Args:
        state: The cluster.
        script: The commands; nothing is done without any.
        wanted: Whether all have to succeed.

    Raises:
        ClusterError: One failed; the message has the words of sacctmgr.
    """
    if "sacctmgr" not in script:
        return
    done = capture(state, ["sh", "-c", script], user=None, machine="ctl")
    if wanted and done.returncode != 0:
        raise ClusterError(f"sacctmgr refuses it, and all is as before:\n{(done.stdout + done.stderr).strip()}")


def _install(state: State, specification: Specification) -> None:
    """Write Slurm's files and have it read them.

    Raises:
        ClusterError: Slurm refuses them; the message has its words. Where a trial has not shown it, but the daemons
            themselves, the files are as before, and daemons that ended are started again.
    """
    folder = state.folder / "etc" / "slurm"
    plugins = Plugins(**state.plugins)
    texts = slurm_files(specification, plugins)
    before = {path.name: path.read_text(encoding="utf-8") for path in map(folder.joinpath, texts) if path.exists()}
    judge(state, specification, texts)
    sizes = log_sizes(state)
    write_texts({folder / name: text for name, text in texts.items()})
    said = _read_again(state)
    told = last_words(state, sizes)
    if said or told:
        write_texts({folder / name: text for name, text in before.items()})
        _revive(state)
        _read_again(state)
        raise ClusterError(f"Slurm refuses the configuration, and the former one is back:\n{told or said}")


def _read_again(state: State) -> str:
    """Have the daemons read their files again; return what they say against it."""
    done = capture(state, ["sh", "-c", READ_AGAIN], user=None, machine="ctl")
    return "" if done.returncode == 0 else done.stderr.strip() or "slurmctld did not answer within 30 s"


def _revive(state: State) -> None:
    """Start the daemons that ended over a configuration."""
    capture(state, ["sh", "-c", ALIVE.format("slurmctld")], user=None, machine="ctl")
    for node in state.specification.node_names:
        if state.has(node):
            capture(state, ["sh", "-c", ALIVE.format(NODE)], user=None, machine=node)
