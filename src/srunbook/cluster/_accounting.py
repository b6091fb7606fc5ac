"""The accounts, users and QOS of a cluster, as commands of sacctmgr."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from srunbook.cluster._sections import Account, Qos, User
from srunbook.cluster._specification import Specification

NORMAL = "normal"
"""The QOS that accounting begins with."""

AWAIT = """\
tries=0
until sacctmgr --noheader --parsable2 show tres format=type,name | grep -qx '{kind}|{name}'; do
    tries=$((tries + 1))
    if ! pgrep -x slurmctld >/dev/null || [ "$tries" -ge 100 ]; then
        echo "accounting does not count {kind}/{name}" >&2
        exit 1
    fi
    sleep 0.1
done
"""
"""Waits until the controller has told accounting that it counts a generic resource."""


def scripts(specification: Specification) -> tuple[str, str]:
    """Return the shell script that makes QOS, accounts and users, and the one that limits them; each may end early.

    The second one runs once the controller is up, since Slurm limits only what it counts, and a QOS preempts only
    others that are there.

    >>> print(scripts(Specification(users={"alice": {"accounts": ["research"]}}))[0].splitlines()[-1])
    sacctmgr --immediate add user alice account=research defaultaccount=research
    >>> print(scripts(Specification(qos={"short": {"grp_tres": {"cpu": 4}}}))[1].splitlines()[-1])
    sacctmgr --immediate modify qos short set grptres=cpu=4
    """
    first: list[list[str]] = []
    then: list[list[str]] = []
    for name, qos in specification.qos.items():
        early, late = _settings(_of_qos(qos))
        first.append([*(["modify", "qos", name, "set"] if name == NORMAL else ["add", "qos", name]), *early])
        then += [["modify", "qos", name, "set", *late]] if late else []
    for name in specification.ordered_accounts:
        early, late = _settings(_of_account(specification, specification.accounts[name]))
        first.append(["add", "account", name, *early])
        then += [["modify", "account", name, "set", *late]] if late else []
    for name, user in specification.users.items():
        early, late = _settings(_of_user(specification, user))
        first.append(["add", "user", name, *early, *late])
    pairs = [limit.split("/", 1) for limit in specification.limited if "/" in limit]
    return _script(first), "".join(AWAIT.format(kind=kind, name=name) for kind, name in pairs) + _script(then)


def _script(commands: Sequence[Sequence[str]]) -> str:
    """Return a shell script of commands of sacctmgr, which ends at the first error."""
    return "\n".join(["set -e", *(shlex.join(["sacctmgr", "--immediate", *command]) for command in commands)]) + "\n"


def _settings(values: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Return settings as sacctmgr takes them: those for the first script, and those for the second."""
    settings = {word: f"{word}={value}" for word, value in values.items() if value not in (None, "")}
    late = [word for word in settings if "tres" in word.lower() or word == "preempt"]
    return [settings[word] for word in settings if word not in late], [settings[word] for word in late]


def _of_qos(qos: Qos) -> dict[str, object]:
    return {
        "priority": qos.priority,
        "maxwall": qos.max_wall,
        "maxjobsperuser": qos.max_jobs_per_user,
        "maxsubmitjobsperuser": qos.max_submit_jobs_per_user,
        "maxtresperjob": _amounts(qos.max_tres_per_job),
        "maxtresperuser": _amounts(qos.max_tres_per_user),
        "grptres": _amounts(qos.grp_tres),
        "preemptmode": qos.preempt_mode,
        "gracetime": qos.grace_time,
        "flags": ",".join(qos.flags),
        **qos.options,
        "preempt": ",".join(qos.preempt),
    }


def _of_account(specification: Specification, account: Account) -> dict[str, object]:
    every = dict.fromkeys([NORMAL, *specification.qos])
    return {
        "parent": account.parent,
        "qos": ",".join(account.qos or every) if specification.qos else None,
        "grptres": _amounts(account.grp_tres),
        **account.options,
    }


def _of_user(specification: Specification, user: User) -> dict[str, object]:
    accounts = user.accounts or tuple(specification.accounts)
    return {
        "account": ",".join(accounts),
        "defaultaccount": accounts[0],
        **user.options,
    }


def _amounts(limits: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in limits.items())
