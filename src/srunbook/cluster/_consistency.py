"""What a specification says that cannot be true at once: names that nothing has, limits on what no node has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from srunbook._yaml import shown
from srunbook.cluster._derived import Derived
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._fields import MAX_NODES
from srunbook.slurm import compress_hostlist

Problem = tuple[tuple[Any, ...], str]
"""Path of the value that a problem is about, and the problem in a sentence."""

MAX_GPUS = 64
"""GPUs of a node, at most; each is a file on it."""

ALIKE = ("cpus", "memory", "gpus_per_node", "features")
"""Fields that describe nodes which are all alike; groups have their own."""

OURS = ("NodeName", "PartitionName", "NodeSet")
"""What slurm.conf says in lines of its own and the specification in sections."""

TAKEN = ("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "var")
"""Folders of a machine that Slurm, its users or the kernel need as they are."""

TAKEN_PLACES = ("/", "/tmp", "/scratch", "/opt", "/opt/images", "/opt/modulefiles")  # noqa: S108 - of a machine


def contradictions(specification: Derived, given: Collection[str]) -> list[Problem]:
    """Return what is wrong between fields, each of which is right by itself.

    Args:
        specification: The whole.
        given: Names of the fields that do not have their defaults.
    """
    found = list(_of_nodes(specification, given))
    return found or [*_of_partitions(specification), *_of_accounting(specification), *_of_machines(specification)]


def _of_nodes(specification: Derived, given: Collection[str]) -> Iterator[Problem]:
    if isinstance(specification.nodes, dict):
        for name in ALIKE:
            if name in given:
                yield (name,), f"{name} is for nodes that are all alike: write it into each group of nodes"
    elif specification.gpus_per_node and not specification.features:
        yield ("features",), "features: GPUs need a type, which is the first feature, as in --features a100"
    if len(specification.node_names) > MAX_NODES:
        count = len(specification.node_names)
        yield ("nodes",), f"the groups have {count} nodes together: a cluster has 1 to {MAX_NODES}"
    for name, group in specification.groups.items():
        path = ("nodes", name, "gres")
        if group.gpus > MAX_GPUS:
            yield path, f"{group.gpus} GPUs on each node of {name}: allowed are {MAX_GPUS}"
        kinds = [(resource, kind) for resource, kind, _ in group.resources]
        if len(set(kinds)) < len(kinds):
            yield path, f"a gres stands there twice: {', '.join(group.gres)}"
        typed = {resource for resource, kind in kinds if kind}
        if mixed := sorted(typed & {resource for resource, kind in kinds if not kind}):
            yield path, f"{mixed[0]} has a type in one place and none in another: {', '.join(group.gres)}"


def _of_partitions(specification: Derived) -> Iterator[Problem]:
    default = [name for name, partition in specification.partitions.items() if partition.default]
    if len(default) > 1:
        yield ("partitions", default[1], "default"), f"{' and '.join(default)} are both the default partition: keep one"
    alone = dict.fromkeys(specification.node_names)
    for name, partition in specification.partitions.items():
        path = ("partitions", name)
        try:
            nodes = specification.nodes_of(partition)
        except SpecificationError as error:
            yield (*path, "nodes"), f"partition {name}: {error}"
            alone = {}  # it may be meant to have these
            continue
        count = len(nodes)
        alone = {node: None for node in alone if node not in nodes}
        if (partition.min_nodes or 0) > (least := min(partition.max_nodes or count, count)):
            yield (*path, "min_nodes"), f"partition {name}: jobs of {partition.min_nodes} nodes and more, of {least}"
        accounts, qos = specification.accounts, _all_qos(specification)
        yield from _unknown((*path, "allow_accounts"), "account", partition.allow_accounts, accounts)
        yield from _unknown((*path, "allow_qos"), "QOS", partition.allow_qos, qos)
        names = [partition.qos, *(value for word, value in partition.options.items() if word.lower() == "qos")]
        yield from _unknown((*path, "qos"), "QOS", [name for name in names if name], qos)
    if alone:
        yield ("partitions",), f"{compress_hostlist(alone)} is in no partition, so no job could run there"


def _of_accounting(specification: Derived) -> Iterator[Problem]:
    qos, accounts = _all_qos(specification), specification.accounts
    for name, one in specification.qos.items():
        yield from _unknown(("qos", name, "preempt"), "QOS", one.preempt, qos)
        for field in ("max_tres_per_job", "max_tres_per_user", "grp_tres"):
            yield from _gres(specification, ("qos", name, field), getattr(one, field))
    for name, account in accounts.items():
        path = ("accounts", name)
        yield from _unknown((*path, "qos"), "QOS", account.qos, qos)
        yield from _unknown((*path, "default_qos"), "QOS", [account.default_qos] if account.default_qos else [], qos)
        yield from _unknown((*path, "parent"), "account", [account.parent] if account.parent else [], accounts)
        yield from _gres(specification, (*path, "grp_tres"), account.grp_tres)
        if _is_own_ancestor(specification, name):
            yield (*path, "parent"), f"account {name} is part of itself, by its parents"
    for name, user in specification.users.items():
        yield from _unknown(("users", name, "accounts"), "account", user.accounts, accounts)
        allowed = user.accounts or tuple(accounts)
        if user.default_account and user.default_account not in allowed:
            text = f"the default account of {name} is {user.default_account}, and the accounts {', '.join(allowed)}"
            yield ("users", name, "default_account"), text


def _of_machines(specification: Derived) -> Iterator[Problem]:
    for word in OURS:
        if found := re.search(rf"^\s*{word}\s*=\s*(\S*)", specification.slurm_conf, re.MULTILINE | re.IGNORECASE):
            section = "nodes" if word == "NodeName" else "partitions"
            yield (
                ("slurm.conf",),
                f"slurm.conf has {word}={found[1]}: write it under {section}, where options take more",
            )
    for target in specification.mounts:
        first = target.strip("/").partition("/")[0]
        plain = "/" + "/".join(part for part in target.split("/") if part)
        if first in TAKEN or plain in TAKEN_PLACES or {".", ".."} & set(target.split("/")):
            yield ("mounts", target), f"{target}: the machine needs that place itself; mount at another, as in /shared"


def _all_qos(specification: Derived) -> tuple[str, ...]:
    return tuple(dict.fromkeys(["normal", *specification.qos]))


def _unknown(path: tuple[Any, ...], what: str, names: Collection[str], known: Collection[str]) -> Iterator[Problem]:
    """Yield each name that nothing has, with the nearest one."""
    for name in names:
        if name not in known:
            meant = get_close_matches(name, known, n=1)
            advice = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}"
            yield path, f"there is no {what} {shown(name)}; {advice}"


def _gres(specification: Derived, path: tuple[Any, ...], limits: Mapping[str, int]) -> Iterator[Problem]:
    """Yield each limit on a generic resource that no node has."""
    resources = [item for group in specification.groups.values() for item in group.resources]
    known = {name for name, _, _ in resources} | {f"{name}:{kind}" for name, kind, _ in resources if kind}
    for limit in limits:
        if limit.startswith("gres/") and limit.removeprefix("gres/") not in known:
            there = ", ".join(f"gres/{name}" for name in sorted(known)) or "no generic resources"
            yield (*path, limit), f"no node has {limit}, which {'.'.join(path)} limits; the nodes have {there}"


def _is_own_ancestor(specification: Derived, name: str) -> bool:
    seen: set[str] = set()
    parent = specification.accounts[name].parent
    while parent in specification.accounts and parent not in seen:
        seen.add(parent)
        parent = specification.accounts[parent].parent
    return name in seen
