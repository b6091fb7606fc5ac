"""The daemons of the cluster: munge everywhere, the database and the controller on `ctl`, slurmd on the nodes."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from srunbook.cluster._entering import entering
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._processes import start_time
from srunbook.cluster._state import State

MUNGE = """\
install -d -o munge -g munge -m 0755 /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged
"""

DATABASE = """\
scontrol show hostnames ctl >/dev/null # reads slurm.conf, and nothing has been started yet
install -d -o mysql -g mysql -m 0755 /run/mysqld
ln -s mysqld /run/mariadbd # where newer ones look for the socket
setsid mariadbd --user=mysql --skip-networking --skip-log-bin --innodb-flush-log-at-trx-commit=0 \
    --innodb-lock-wait-timeout=900 --loose-innodb-snapshot-isolation=OFF \
    --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid \
    >/var/log/slurm/mariadbd.log 2>&1 </dev/null &
tries=0
until mariadb-admin --silent ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    if ! kill -0 $! 2>/dev/null || [ "$tries" -ge 3000 ]; then
        tail -n 3 /var/log/slurm/mariadbd.log >&2
        echo "MariaDB died, or did not answer within 300 s" >&2
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
    [ "$tries" -lt 1500 ] || { cat /var/log/slurm/sacctmgr.log >&2; exit 1; }
    sleep 0.1
done
told() { sh "$1" >/var/log/slurm/accounts.log 2>&1 || { cat /var/log/slurm/accounts.log >&2; exit 1; }; }
told /etc/slurm/accounts.sh
slurmctld
told /etc/slurm/limits.sh
"""
"""Start the accounting, make the accounts, start the controller, and set the limits on what it has."""

NODE = "slurmd"

PROGRAMS = {"ctl": ("munged", "mariadbd", "slurmdbd", "slurmctld"), "login": ("munged",)}
"""The daemons of each machine, by the names of their processes; those of a node are `ON_NODE`."""

ON_NODE = ("munged", "slurmd")


def start_daemons(state: State, machines: Sequence[str]) -> None:
    """Start the daemons of some machines, those of the nodes last.

    Raises:
        ClusterError: One did not start; the message ends with what it said.
    """
    _all_at_once(state, {machine: ["sh", "-ec", MUNGE] for machine in machines})
    if "ctl" in machines:
        _all_at_once(state, {"ctl": ["sh", "-ec", DATABASE]})
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
    if failed and (told := last_words(state)):
        raise ClusterError(f"Slurm refuses the configuration:\n{told}")
    if failed:
        log = state.folder / "log" / failed[0]
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        if "fatal: " in tail:  # a daemon that gives up before it has a log of its own
            raise ClusterError(f"Slurm refuses the configuration:\n{tail}")
        raise ClusterError(f"the daemons of {', '.join(failed)} did not start:\n{tail}")


def dead_daemons(state: State) -> list[str]:
    """Return the daemons that do not run although they should, such as `slurmd on node1`.

    Nodes whose power a fault has cut are left out: `heal` boots them.
    """
    running: dict[int, set[str]] = defaultdict(set)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if start_time(int(process.name)) is not None:
                namespace = (process / "ns" / "pid").stat().st_ino
                running[namespace].add((process / "comm").read_text(encoding="utf-8").strip())
    cut = {fault["node"] for fault in state.faults if fault["kind"] == "kill-node"}
    dead = []
    for machine in state.specification.machines:
        found: set[str] = set()
        with contextlib.suppress(OSError, ClusterError):
            found = running[Path(f"/proc/{state.first_process(machine)}/ns/pid").stat().st_ino]
        if machine not in cut:
            dead += [f"{name} on {machine}" for name in PROGRAMS.get(machine, ON_NODE) if name not in found]
    return dead


def node_states(state: State) -> dict[str, str]:
    """Return the state of every node in sinfo's short words, such as `idle`, `mix`, `down*`."""
    return {node: word for node, (word, _) in _described(state).items()}


def _described(state: State) -> dict[str, tuple[str, str]]:
    """Return the state of every node, and the reason that Slurm gives for it."""
    command = entering(state, "login", ["sinfo", "--noheader", "--all", "--Node", "--format=%N %t %E"])
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    lines = (line.split(None, 2) for line in result.stdout.splitlines())
    return {words[0]: (words[1], words[2] if len(words) == 3 else "") for words in lines if len(words) >= 2}


def await_idle(state: State, *, timeout: float = 300.0) -> None:
    """Wait until all nodes are idle.

    Raises:
        ClusterError: A daemon has ended, Slurm refuses a node, or they are not idle within that time; the message has
            Slurm's words.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = _described(state)
        states = {name: word for name, (word, _) in found.items()}
        if len(states) == len(state.specification.node_names) and set(states.values()) == {"idle"}:
            return
        if told := last_words(state):
            raise ClusterError(f"Slurm refuses the configuration:\n{told}")
        refused = {name: reason for name, (word, reason) in found.items() if word.startswith(("inval", "drain"))}
        if refused or time.monotonic() > deadline:
            seen = ", ".join(f"{name} {word}" for name, word in states.items()) or "the controller does not answer"
            reasons = "".join(f"\n{name}: {reason}" for name, reason in refused.items())
            when = "" if refused else f" after {timeout:.0f} s"
            raise ClusterError(f"not all nodes are idle{when}: {seen}{reasons}")
        time.sleep(0.1)


def log_sizes(state: State) -> dict[Path, int]:
    """Return the size of each log of Slurm's daemons, in bytes."""
    return {log: log.stat().st_size for log in sorted((state.folder / "log" / "slurm").glob("slurm*.log"))}


def last_words(state: State, since: Mapping[Path, int] | None = None) -> str:
    """Return the last lines of the daemons that gave up, or nothing.

    Args:
        state: The cluster.
        since: Bytes of each log to pass over.
    """
    for log in log_sizes(state):
        text = log.read_bytes()[(since or {}).get(log, 0) :]
        lines = text.decode(errors="replace").splitlines()
        if any("fatal: " in line for line in lines[-20:]):
            told = [line.partition("] ")[2] or line for line in lines if "error: " in line or "fatal: " in line]
            return "\n".join(f"{log.stem}: {line}" for line in told[-8:])
    return ""
