"""The daemons of the cluster: munge everywhere, the database and the controller on `ctl`, slurmd on the nodes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from srunbook.cluster._cache import cache_folder, make_folder
from srunbook.cluster._configuration import (
    SECOND_USER,
    USER,
    USER_IDS,
    Plugins,
    cgroup_conf,
    gres_conf,
    hosts,
    slurm_conf,
    slurmdbd_conf,
    task_prolog,
)
from srunbook.cluster._entering import entering
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._provision import IMAGES, Provision
from srunbook.cluster._scripts import Bind
from srunbook.cluster._state import State

MUNGE = """\
install -d -o munge -g munge -m 0755 /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged
"""

DATABASE = """\
install -d -o mysql -g mysql -m 0755 /run/mysqld
ln -s mysqld /run/mariadbd # where newer ones look for the socket
setsid mariadbd --user=mysql --skip-networking --skip-log-bin --innodb-flush-log-at-trx-commit=0 \
    --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF \
    --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid \
    >/var/log/slurm/mariadbd.log 2>&1 </dev/null &
tries=0
until mariadb-admin --silent ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    if ! kill -0 $! 2>/dev/null || [ "$tries" -ge 300 ]; then
        tail -n 3 /var/log/slurm/mariadbd.log >&2
        echo "MariaDB died, or did not answer within 30 s" >&2
        exit 1
    fi
    sleep 0.1
done
mariadb --execute="CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
slurmdbd
tries=0
until sacctmgr --immediate add cluster srunbook >/var/log/slurm/sacctmgr.log 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 150 ] || { cat /var/log/slurm/sacctmgr.log >&2; exit 1; }
    sleep 0.1
done
sacctmgr --immediate add account research,my-project >>/var/log/slurm/sacctmgr.log 2>&1
sacctmgr --immediate add user "$1,$2" account=research,my-project defaultaccount=research \
    >>/var/log/slurm/sacctmgr.log 2>&1
slurmctld
"""
"""Start the accounting and the controller; its arguments are the users who get an account."""

NODE = "slurmd"


def write_files(state: State, plugins: Plugins, provision: Provision) -> list[Bind]:
    """Write the configuration and the homes of a cluster.

    Args:
        state: The cluster.
        plugins: The plugins it runs with.
        provision: What it provides to jobs.

    Returns:
        What every machine of the cluster gets bound.

    Raises:
        ClusterError: Something would be bound into the home of a user.
    """
    provided = provision.all_binds()
    check_targets(provided)
    folder = state.folder
    slurm = folder / "etc" / "slurm"
    modules = folder / "modulefiles"
    images = cache_folder() / "images"
    texts = {
        folder / "etc" / "hosts": hosts(state.specification),
        slurm / "slurm.conf": slurm_conf(state.specification, plugins),
        slurm / "slurmdbd.conf": slurmdbd_conf(),
        slurm / "cgroup.conf": cgroup_conf(plugins),
        slurm / "gres.conf": gres_conf(state.specification),
        slurm / "task_prolog.sh": task_prolog(),
    }
    texts |= {modules / name: text for name, text in provision.module_files().items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (slurm / "task_prolog.sh").chmod(0o755)
    number = _slurm_number(state)
    os.chown(slurm / "slurmdbd.conf", number, number)
    (slurm / "slurmdbd.conf").chmod(0o600)
    logs = folder / "log" / "slurm"
    logs.mkdir(parents=True, exist_ok=True)
    os.chown(logs, number, number)
    for user, uid in USER_IDS.items():
        home = folder / "home" / user
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        os.chown(home, uid, uid)
        for link in provision.links if provision.environment else ():
            (home / link).symlink_to(str(provision.environment))
    make_folder(images, 0o755)
    return [
        Bind(folder / "etc" / "hosts", Path("/etc/hosts")),
        Bind(slurm, Path("/etc/slurm")),
        Bind(modules, Path("/opt/modulefiles")),
        Bind(images, IMAGES),
        Bind(logs, Path("/var/log/slurm"), writable=True),
        Bind(folder / "home", Path("/home"), writable=True),
        Bind(state.space / "scratch", Path("/scratch"), writable=True),
        *provided,
    ]


def check_targets(binds: Iterable[Bind]) -> None:
    """Refuse what would be bound into the home of a user, who could lead root elsewhere by a link in its place.

    Raises:
        ClusterError: A target lies there.
    """
    for bind in binds:
        for user in USER_IDS:
            if bind.target.is_relative_to(f"/home/{user}"):
                raise ClusterError(
                    f"{bind.target} would lie in the home of {user}, a user of the cluster: "
                    "keep srunbook and its environment elsewhere, such as in a folder of /opt"
                )


def _slurm_number(state: State) -> int:
    passwd = Path(state.root["path"]) / "etc" / "passwd"
    for line in passwd.read_text(encoding="utf-8").splitlines():
        fields = line.split(":")
        if fields[0] == "slurm":
            return int(fields[2])
    raise ClusterError(f"{passwd} has no user slurm: remove the folder of this root, and it will be made anew")


def start_daemons(state: State, machines: Sequence[str]) -> None:
    """Start the daemons of some machines, those of the nodes last.

    Raises:
        ClusterError: One did not start; the message ends with what it said.
    """
    _all_at_once(state, {machine: ["sh", "-ec", MUNGE] for machine in machines})
    if "ctl" in machines:
        _all_at_once(state, {"ctl": ["sh", "-ec", DATABASE, "sh", USER, SECOND_USER]})
    _all_at_once(state, {machine: ["sh", "-ec", NODE] for machine in machines if machine.startswith("node")})


def _all_at_once(state: State, commands: dict[str, list[str]]) -> None:
    processes = {}
    for machine, command in commands.items():
        with (state.folder / "log" / machine).open("ab") as stream:
            processes[machine] = subprocess.Popen(
                entering(state, machine, command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
    failed = [machine for machine, process in processes.items() if process.wait() != 0]
    if failed:
        log = state.folder / "log" / failed[0]
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        raise ClusterError(f"the daemons of {', '.join(failed)} did not start:\n{tail}")


def node_states(state: State) -> dict[str, str]:
    """Return the state of every node in sinfo's short words, such as `idle`, `mix`, `down*`."""
    command = entering(state, "login", ["sinfo", "--noheader", "--Node", "--partition=batch", "--format=%N %t"])
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    pairs = (line.split() for line in result.stdout.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def await_idle(state: State, *, timeout: float = 60.0) -> None:
    """Wait until all nodes are idle.

    Raises:
        ClusterError: They are not within that time; the message says what they are.
    """
    deadline = time.monotonic() + timeout
    while True:
        states = node_states(state)
        if len(states) == state.specification.nodes and set(states.values()) == {"idle"}:
            return
        if time.monotonic() > deadline:
            seen = ", ".join(f"{name} {word}" for name, word in states.items()) or "the controller does not answer"
            raise ClusterError(f"not all nodes are idle after {timeout:.0f} s: {seen}")
        time.sleep(0.1)
