"""The accounts, users and QOS of a cluster, as commands of sacctmgr."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from srunbook.cluster._sections import Account, Qos, User
from srunbook.cluster._specification import Specification

NORMAL = "normal"
"""The QOS that accounting begins with."""

RESET = {"preempt": "", "qos": "", "parent": "root", "preemptmode": "cluster"}
"""What takes back a setting for which sacctmgr does not know -1."""

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

    The second one runs once the controller is up, since Slurm limits only what it counts.

    >>> print(scripts(Specification(users={"alice": {"accounts": ["research"]}}))[0].splitlines()[-1])
    sacctmgr --immediate add user alice account=research defaultaccount=research
    >>> print(scripts(Specification(qos={"short": {"grp_tres": {"cpu": 4}}}))[1].splitlines()[-1])
    sacctmgr --immediate modify qos short set grptres=cpu=4
    """
    first, then = changes(None, specification)
    pairs = [limit.split("/", 1) for limit in specification.limited if "/" in limit]
    return as_script(first), "".join(AWAIT.format(kind=kind, name=name) for kind, name in pairs) + as_script(then)


def as_script(commands: list[list[str]]) -> str:
    """Return a shell script of commands of sacctmgr, which ends at the first error."""
    lines = [shlex.join(["sacctmgr", "--immediate", *command]) for command in commands]
    return "\n".join(["set -e", *lines]) + "\n"


def changes(before: Specification | None, after: Specification) -> tuple[list[list[str]], list[list[str]]]:
    """Return the commands that turn the QOS, accounts and users of one specification into those of another.

    Args:
        before: What there is; None of a new cluster. Its users are those of `after`.
        after: What there will be.

    Returns:
        Commands for what a partition may name, which come before Slurm reads its files, and all others, for which
        Slurm may have to count a resource first.

    >>> one = Specification(qos={"short": {"max_wall": "01:00:00"}})
    >>> changes(one, Specification(qos={"short": {"priority": 5}}))
    ([], [['modify', 'qos', 'short', 'set', 'priority=5', 'maxwall=-1']])
    """
    old_qos = before.qos if before else {}
    old_accounts = before.accounts if before else {}
    additions: list[list[str]] = []
    set_: list[list[str]] = []
    gone: list[list[str]] = []
    for name, qos in after.qos.items():
        new = qos_words(qos)
        old = qos_words(old_qos[name]) if name in old_qos else _at_once(new)
        if name not in old_qos:
            additions.append(
                [*(["modify", "qos", name, "set"] if name == NORMAL else ["add", "qos", name]), *words(old)]
            )
        set_.append(["modify", "qos", name, "set", *_changed(old, new)])
    if NORMAL in old_qos and NORMAL not in after.qos:
        set_.append(["modify", "qos", NORMAL, "set", *_changed(qos_words(old_qos[NORMAL]), qos_words(Qos()))])
    for name in after.ordered_accounts:
        new = account_words(after, after.accounts[name])
        old = account_words(before, old_accounts[name]) if before and name in old_accounts else _at_once(new)
        if name not in old_accounts:
            additions.append(["add", "account", name, *words(old)])
        if before and name not in old_accounts:
            additions += [
                ["add", "user", user, f"account={name}"]
                for user, details in after.users.items()
                if not details.accounts
            ]
        set_.append(["modify", "account", name, "set", *_changed(old, new)])
    for name, user in after.users.items():
        new = user_words(after, user)
        if before is None:
            additions.append(["add", "user", name, *words(new)])
        else:  # an account may go that was the user's default
            old = user_words(before, before.users[name])
            set_.append(["modify", "user", name, "set", *_changed(old, {**new, "account": old["account"]})])
    if before:
        gone = [["delete", "account", name] for name in reversed(before.ordered_accounts) if name not in after.accounts]
    gone += [["delete", "qos", name] for name in old_qos if name not in after.qos and name != NORMAL]
    return additions, [command for command in set_ if command[-1] != "set"] + gone


def _at_once(values: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of something new that need neither a counted resource nor another QOS."""
    return {word: value for word, value in values.items() if "tres" not in word.lower() and word != "preempt"}


def _changed(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the settings that differ; -1 takes most of them back, for a resource by its name."""
    settings = []
    for word in dict.fromkeys([*old, *new]):
        value, before = ("" if values.get(word) is None else values[word] for values in (new, old))
        if value == before:
            continue
        if "tres" in word:
            kept = dict.fromkeys(part.partition("=")[0] for part in str(value).split(","))
            gone = [part.partition("=")[0] for part in str(before).split(",") if part]
            value = ",".join([*filter(None, [str(value)]), *(f"{name}=-1" for name in gone if name not in kept)])
        settings.append(f"{word}={RESET.get(word, -1) if value == '' else value}")
    return settings


def words(values: Mapping[str, object]) -> list[str]:
    """Return settings as sacctmgr takes them, without those that are not set.

    >>> words({"maxwall": "01:00:00", "grptres": ""})
    ['maxwall=01:00:00']
    """
    return [f"{word}={value}" for word, value in values.items() if value not in (None, "")]


def qos_words(qos: Qos) -> dict[str, object]:
    """Return what sacctmgr is told of a QOS."""
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


def account_words(specification: Specification, account: Account) -> dict[str, object]:
    """Return what sacctmgr is told of an account."""
    every = dict.fromkeys([NORMAL, *specification.qos])
    return {
        "parent": account.parent,
        "qos": ",".join(account.qos or every) if specification.qos else None,
        "defaultqos": account.default_qos,
        "maxjobs": account.max_jobs,
        "grptres": _amounts(account.grp_tres),
        **account.options,
    }


def user_words(specification: Specification, user: User) -> dict[str, object]:
    """Return what sacctmgr is told of a user."""
    accounts = user.accounts or tuple(specification.accounts)
    return {
        "account": ",".join(accounts),
        "defaultaccount": user.default_account or accounts[0],
        "adminlevel": None if user.admin == "None" else user.admin,
        **user.options,
    }


def _amounts(limits: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in limits.items())
