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


def accounts_script(specification: Specification) -> str:
    """Return the shell script that makes QOS, accounts and users, each in one command; it ends at the first error.

    >>> print(accounts_script(Specification(users={"alice": {"accounts": ["research"]}})).splitlines()[-1])
    sacctmgr --immediate add user alice account=research defaultaccount=research
    """
    commands = [make_qos(name, qos) for name, qos in specification.qos.items()]
    commands += [  # which may name one that comes later
        ["modify", "qos", name, "set", f"preempt={','.join(qos.preempt)}"]
        for name, qos in specification.qos.items()
        if qos.preempt
    ]
    commands += [make_account(specification, name) for name in by_parents(specification.accounts)]
    commands += [add_user(specification, name) for name in specification.users]
    return as_script(commands)


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
"""Waits until the controller has told accounting which generic resources it counts."""


def limits_script(specification: Specification) -> str:
    """Return the shell script that sets limits on resources, once the controller is up; empty without limits.

    >>> one = Specification(qos={"short": {"grp_tres": {"cpu": 4}}})
    >>> print(limits_script(one).splitlines()[-1])
    sacctmgr --immediate modify qos short set grptres=cpu=4
    """
    settings = [("qos", name, qos_words(qos)) for name, qos in specification.qos.items()]
    settings += [
        ("account", name, account_words(specification, account)) for name, account in specification.accounts.items()
    ]
    commands = [
        ["modify", kind, name, "set", *found]
        for kind, name, values in settings
        if (found := words({word: value for word, value in values.items() if word not in _without_tres(values)}))
    ]
    if not commands:
        return ""
    pairs = [limit.split("/", 1) for limit in specification.limited if "/" in limit]
    return "".join(AWAIT.format(kind=kind, name=name) for kind, name in pairs) + as_script(commands)


def _without_tres(values: Mapping[str, object]) -> dict[str, object]:
    return {word: value for word, value in values.items() if "tres" not in word.lower()}


def changes(before: Specification, after: Specification) -> tuple[list[list[str]], list[list[str]]]:
    """Return the commands that turn the QOS and accounts of one specification into those of another.

    Returns:
        Commands for what a partition may name, which come before Slurm reads its files again, and all others, for
        which Slurm may have to count a resource first.

    >>> one = Specification(qos={"short": {"max_wall": "01:00:00"}})
    >>> changes(one, Specification(qos={"short": {"priority": 5}}))
    ([], [['modify', 'qos', 'short', 'set', 'priority=5', 'maxwall=-1']])
    """
    made, of_qos, gone = _changes_of_qos(before, after)
    made_accounts, of_accounts = _changes_of_accounts(before, after)
    return made + made_accounts, of_qos + of_accounts + gone


def _changes_of_qos(before: Specification, after: Specification) -> tuple[list[list[str]], ...]:
    made, changed, gone = [], [], []
    for name, qos in after.qos.items():
        if name in before.qos:
            old = _with_preempted(before.qos[name])
        else:
            old = _without_tres(qos_words(qos))
            made.append(make_qos(name, qos))
        changed.append(["modify", "qos", name, "set", *_changed(old, _with_preempted(qos))])
    for name in before.qos:
        if name == NORMAL and name not in after.qos:
            old = _with_preempted(before.qos[name])
            changed.append(["modify", "qos", name, "set", *_changed(old, _with_preempted(Qos()))])
        elif name not in after.qos:
            gone.append(["delete", "qos", name])
    return made, [command for command in changed if command[-1] != "set"], gone


def _changes_of_accounts(before: Specification, after: Specification) -> tuple[list[list[str]], ...]:
    made, changed = [], []
    for name in by_parents(after.accounts):
        new = account_words(after, after.accounts[name])
        if name in before.accounts:
            old = account_words(before, before.accounts[name])
        else:
            old = _without_tres(new)
            made.append(make_account(after, name))
            made += [["add", "user", user, f"account={name}"] for user, one in after.users.items() if not one.accounts]
        changed.append(["modify", "account", name, "set", *_changed(old, new)])
    for name, user in after.users.items():  # an account may go that was a user's default
        old, new = user_words(before, before.users[name]), user_words(after, user)
        changed.append(["modify", "user", name, "set", *_changed(old, {**new, "account": old["account"]})])
    gone = [["delete", "account", name] for name in reversed(by_parents(before.accounts)) if name not in after.accounts]
    return made, [command for command in changed if command[-1] != "set"] + gone


def _changed(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the settings that differ; -1 takes most of them back, for a resource by its name."""
    found = []
    for word in [*old, *(word for word in new if word not in old)]:
        value, before = ("" if values.get(word) is None else values[word] for values in (new, old))
        if value == before:
            continue
        if "tres" in word:
            kept = dict.fromkeys(part.partition("=")[0] for part in str(value).split(","))
            gone = [part.partition("=")[0] for part in str(before).split(",") if part]
            value = ",".join([*filter(None, [str(value)]), *(f"{name}=-1" for name in gone if name not in kept)])
        found.append(f"{word}={RESET.get(word, -1) if value == '' else value}")
    return found


def as_script(commands: list[list[str]]) -> str:
    """Return a shell script of commands of sacctmgr."""
    lines = [shlex.join(["sacctmgr", "--immediate", *command]) for command in commands]
    return "\n".join(["set -e", *lines]) + "\n"


def make_qos(name: str, qos: Qos) -> list[str]:
    """Return the command that makes a QOS without its limits on resources; `normal` is there already."""
    command = ["modify", "qos", name, "set"] if name == NORMAL else ["add", "qos", name]
    return [*command, *words(_without_tres(qos_words(qos)))]


def make_account(specification: Specification, name: str) -> list[str]:
    """Return the command that makes an account without its limits on resources."""
    return ["add", "account", name, *words(_without_tres(account_words(specification, specification.accounts[name])))]


def add_user(specification: Specification, name: str) -> list[str]:
    """Return the command that makes a user with the accounts that the user may charge."""
    return ["add", "user", name, *words(user_words(specification, specification.users[name]))]


def words(values: Mapping[str, object]) -> list[str]:
    """Return settings as sacctmgr takes them, without those that are not set.

    >>> words({"maxwall": "01:00:00", "grptres": ""})
    ['maxwall=01:00:00']
    """
    return [f"{word}={value}" for word, value in values.items() if value not in (None, "")]


def qos_words(qos: Qos) -> dict[str, object]:
    """Return what sacctmgr is told of a QOS, but for what it preempts."""
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
    }


def _with_preempted(qos: Qos) -> dict[str, object]:
    return {**qos_words(qos), "preempt": ",".join(qos.preempt)}


def account_words(specification: Specification, account: Account) -> dict[str, object]:
    """Return what sacctmgr is told of an account."""
    every = [NORMAL, *(name for name in specification.qos if name != NORMAL)]
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


def by_parents(accounts: Mapping[str, Account]) -> list[str]:
    """Return the names of accounts, each after its parent.

    >>> by_parents({"a": Account(parent="b"), "b": Account()})
    ['b', 'a']
    """
    found: list[str] = []
    while len(found) < len(accounts):
        found += [name for name, one in accounts.items() if name not in found and one.parent in (None, *found)]
    return found


def _amounts(limits: Mapping[str, int]) -> str:
    return ",".join(f"{name}={value}" for name, value in limits.items())
