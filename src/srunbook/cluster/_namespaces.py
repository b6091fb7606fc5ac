"""The namespaces of a cluster: how they are made and connected, and how all of the cluster goes away.

One process, the supervisor, is the first of a process namespace; every other process of the cluster lives in that
namespace or in one nested in it. Its network namespace holds the bridge, its mount namespace the file systems in
memory. Each machine of the cluster is a process nested in it with namespaces of its own. Nothing has a name on the
host, so when the supervisor dies the kernel removes all processes, interfaces and mounts.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from srunbook.cluster._cgroups import group_binds, remove_group
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._host import CLEAN_ENVIRONMENT
from srunbook.cluster._processes import children, kill, processes_of, start_time
from srunbook.cluster._scripts import MACHINE, shell_script
from srunbook.cluster._state import State, folder_of, groups_of_cluster

MOST_LEARNT = 20
"""Machines that learn each other's hardware addresses by ARP, as on a site; those of a larger cluster are told them.

The kernel's table of learnt addresses has 1024 entries (gc_thresh3): 32 machines that talk to each other fill it.
"""


def start_supervisor(state: State) -> None:
    """Start the process on whose life all others depend; it is on record before it makes anything."""
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--", "sh", "-c"]
    arguments = ["sh", str(state.space), state.root["path"], f"{state.limits.memory_mib // 2}m"]
    log = state.folder / "log" / "supervisor"
    process = _start([*command, shell_script("supervisor"), *arguments], log)
    state.supervisor = process.pid
    state.enter("supervised")
    assert process.stdin is not None  # noqa: S101 - narrows the type
    process.stdin.write("go\n")
    process.stdin.close()
    _await_ready(process, log)


def start_machines(state: State, names: Sequence[str]) -> None:
    """Start machines of the cluster and put their first processes on record."""
    inside = ["nsenter", f"--target={_first(state)}", "--mount", "--net", "--pid", "--ipc", "--"]
    unshare = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    processes = {}
    for name in names:
        gpus = state.specification.group_of(name).gpus if name.startswith("node") else 0
        shared = f"{state.limits.shared_mib}m"
        script = ["sh", "-c", MACHINE, "sh", name, str(state.space), str(gpus), shared]
        groups = [bind.arguments() for bind in group_binds(state, name)]
        listed = [item for bind in [*groups, *state.binds] for item in bind]
        processes[name] = _start([*inside, *unshare, *script, *listed, "--"], state.folder / "log" / name)
    for name, process in processes.items():
        _await_ready(process, state.folder / "log" / name)
        first = children(children(process.pid)[0])[0]
        state.machines[name] = (first, start_time(first) or 0)
    state.save()


def connect(state: State, names: Sequence[str]) -> None:
    """Give machines their link and their address in the cluster's network."""
    specification = state.specification
    outside = "".join(
        f"link add name v-{name} type veth "
        f"peer name eth0 address {specification.hardware_address(name)} netns {state.first_process(name)}\n"
        f"link set v-{name} master br0 up\n"
        for name in names
    )
    in_network(state, None, ["ip", "-batch", "-"], outside)
    entries = "".join(
        f"neigh replace {specification.address(name)} lladdr {specification.hardware_address(name)} dev eth0 "
        "nud permanent\n"
        for name in specification.machines
        if len(specification.machines) > MOST_LEARNT
    )
    for name in names:
        address = f"addr add {specification.address(name)}/16 brd + dev eth0\nlink set eth0 up\n"
        in_network(state, name, ["ip", "-batch", "-"], address + entries)


def in_network(state: State, machine: str | None, command: Sequence[str], text: str | None = None) -> None:
    """Run a program of the host in the network of a machine, or in that of the bridge."""
    process = _first(state) if machine is None else state.first_process(machine)
    line = ["nsenter", f"--target={process}", "--net", "--", *command]
    result = subprocess.run(line, input=text, env=CLEAN_ENVIRONMENT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: {result.stderr.strip() or result.returncode}")


def _first(state: State) -> int:
    """Return the process id of the first process in the supervisor's namespaces."""
    processes = children(state.supervisor) if state.supervisor else []
    if not processes:
        raise ClusterError(
            f"the first process of cluster {state.specification.name!r} is gone: `srunbook cluster down`"
        )
    return processes[0]


_STARTED: list[subprocess.Popen[str]] = []
"""What this process has started and not yet seen end; most of it outlives this process."""


def _start(command: list[str], log: Path) -> subprocess.Popen[str]:
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=CLEAN_ENVIRONMENT,
            text=True,
            start_new_session=True,
            cwd="/",
            umask=0o022,
        )
    _STARTED.append(process)
    return process


def _await_ready(process: subprocess.Popen[str], log: Path) -> None:
    assert process.stdout is not None  # noqa: S101 - narrows the type
    with process.stdout:
        line = process.stdout.readline()
    if process.stdin:
        process.stdin.close()
    if line != "ready\n":
        output = log.read_text(encoding="utf-8", errors="replace").strip()
        raise ClusterError(f"{log.name} did not come up: {output or 'it said nothing'}")


def destroy(name: str, *, timeout: float = 120.0) -> bool:
    """End every process of a cluster, and with them its namespaces, interfaces and mounts; then its cgroups and files.

    All of it is found by the cluster's folder, so a record that is broken or names something else does no harm.

    Returns:
        Whether there was anything of it.
    """
    deadline = time.monotonic() + timeout
    folder = folder_of(name)
    processes = processes_of(folder)
    identities = {*processes.values(), *(path.name.removeprefix("space-") for path in folder.glob("space-????????"))}
    ending = {process: start_time(process) for parent in processes for process in (parent, *children(parent))}
    for process in processes:
        kill(process)  # its child dies with it, by the kernel
    while any(start is not None and start_time(process) == start for process, start in ending.items()):
        _wait(deadline, "processes of the cluster are still alive")
    _STARTED[:] = [process for process in _STARTED if process.poll() is None]
    for group in groups_of_cluster(name, identities):
        while group.exists():
            remove_group(group)
            if group.exists():
                _wait(deadline, f"the cgroup {group} is still in use")
    left = folder.exists() and any(folder.iterdir())
    if folder.exists():
        shutil.rmtree(folder)
    return bool(processes or left)


def _wait(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise ClusterError(f"{what}, although everything was told to end; try `srunbook cluster down` again")
    time.sleep(0.02)
