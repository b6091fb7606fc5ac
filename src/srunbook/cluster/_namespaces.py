"""The namespaces of a cluster: what is made, how one gets in, and how all of it goes away.

One process, the supervisor, is the first of a process namespace; every other process of the cluster lives in that
namespace or in one nested in it. Its network namespace holds the bridge, its mount namespace the file systems in
memory. Each machine of the cluster is a process nested in it with namespaces of its own. Nothing has a name on the
host, so when the supervisor dies the kernel removes all processes, interfaces and mounts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._machine import CGROUPS, CLEAN_ENVIRONMENT, hierarchies
from srunbook.cluster._state import State, children, start_time

SUPERVISOR = """\
set -eu
read -r go # nothing is made before this process is on record; without a word, it ends
space=$1 lower=$2
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$space"
mkdir "$space/lower" "$space/scratch"
mount --bind "$lower" "$space/lower"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$space/scratch"
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
echo ready
exec sleep infinity </dev/null >/dev/null 2>&1
"""
"""Script of the supervisor; its arguments are the folder for file systems in memory and the root below all others."""

ROOTED = """\
name=$1 space=$2 gpus=$3
shift 3
hostname "$name"
mkdir -p "$space/$name/upper" "$space/$name/work" "$space/$name/root"
cd "$space/$name"
mount -t overlay overlay -o lowerdir=../lower,upperdir=upper,workdir=work root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
for device in null zero full random urandom tty; do
    [ -e "/dev/$device" ] || continue
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
[ ! -e /dev/fuse ] || mknod -m 666 dev/fuse c 10 229 # for all, as udev has it: this machine may have no udev
index=0
while [ "$index" -lt "$gpus" ]; do # numbers that belong to no driver: Slurm wants a file, and nothing can open it
    mknod "dev/gpu$index" c 240 "$index"
    index=$((index + 1))
done
[ ! -d sys/fs/cgroup ] || mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
while [ "$1" != -- ]; do # what to bind, where, and how
    source=$1 target=${2#/} how=$3
    shift 3
    if [ -d "$source" ]; then mkdir -p "$target"; else
        mkdir -p "$(dirname "$target")"
        [ -e "$target" ] || : >"$target"
    fi
    parent=$(dirname "$target")
    while [ "$parent" != . ]; do
        [ "$how" = rw ] || chmod a+x "$parent" 2>/dev/null || : # an ordinary user must get there
        parent=$(dirname "$parent")
    done
    mount --bind "$source" "$target"
    [ "$how" = rw ] || mount -o remount,bind,ro "$target"
done
shift
mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old
"""
"""Makes a machine of a root; its arguments are its name, the folder in memory, its GPUs, what is bound, and `--`."""

MEMBER = f"""\
set -eu
{ROOTED}\
ip link set lo up
echo ready
exec tini -s -- sleep infinity </dev/null >/dev/null 2>&1
"""
"""Script of a machine of the cluster."""

WORKSHOP = f"""\
set -eu
lower=$1
shift
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$2"
mkdir "$2/lower"
mount --bind "$lower" "$2/lower"
{ROOTED}\
exec "$@"
"""
"""Script of a machine without a cluster, for one command in a root; its first argument is the root."""

JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1"; shift; done; shift; exec "$@"'
"""Joins the cgroups named before `--`, then becomes the command after it."""

AS_USER = 'cd -- "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class Bind:
    """Something of the host that a machine of the cluster sees.

    Args:
        source: Path on the host.
        target: Path in the machine.
        writable: Whether it may be written to.
    """

    source: Path
    target: Path
    writable: bool = False

    def arguments(self) -> list[str]:
        """As arguments of the script of a machine."""
        return [str(self.source), str(self.target), "rw" if self.writable else "ro"]


def in_workshop(lower: str, space: Path, binds: Sequence[Bind], command: Sequence[str]) -> list[str]:
    """The command line that runs one command in a root, with the host's network; its traces end with it.

    Args:
        lower: The root, which is not changed.
        space: An empty folder to mount on.
        binds: What of the host is seen there.
        command: What to run.
    """
    unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    listed = [item for bind in binds for item in bind.arguments()]
    return [*unshare, "sh", "-c", WORKSHOP, "sh", lower, "workshop", str(space), "0", *listed, "--", *command]


def start_supervisor(state: State, lower: str) -> None:
    """Starts the process on whose life all others depend; it is on record before it makes anything.

    Raises:
        ClusterError: It did not come up.
    """
    space = state.folder / "space"
    space.mkdir(exist_ok=True)
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--"]
    process = _start([*command, "sh", "-c", SUPERVISOR, "sh", str(space), lower], state.folder / "log" / "supervisor")
    started = start_time(process.pid)
    if started is None:
        raise ClusterError(f"the first process of the cluster ended at once; see {state.folder / 'log' / 'supervisor'}")
    state.supervisor = (process.pid, started)
    state.enter("supervised")
    assert process.stdin is not None  # noqa: S101 - narrows the type
    process.stdin.write("go\n")
    process.stdin.close()
    _await_ready(process, state.folder / "log" / "supervisor")


def start_members(state: State, names: Sequence[str]) -> None:
    """Starts machines of the cluster and puts their first processes on record.

    Raises:
        ClusterError: One did not come up.
    """
    inside = ["nsenter", f"--target={_first(state)}", "--mount", "--net", "--pid", "--ipc", "--"]
    unshare = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    processes = {}
    for name in names:
        gpus = state.specification.gpus_per_node if name.startswith("node") else 0
        script = ["sh", "-c", MEMBER, "sh", name, str(state.folder / "space"), str(gpus)]
        groups = [
            Bind(hierarchy / _group(state, name), hierarchy, writable=True).arguments() for hierarchy in hierarchies()
        ]
        listed = [item for bind in [*groups, *state.binds] for item in bind]
        processes[name] = _start([*inside, *unshare, *script, *listed, "--"], state.folder / "log" / name)
    for name, process in processes.items():
        _await_ready(process, state.folder / "log" / name)
        state.members[name] = children(children(process.pid)[0])[0]
    state.save()


def connect(state: State, names: Sequence[str]) -> None:
    """Gives machines their link and their address in the cluster's network."""
    outside = "".join(
        f"link add name v-{name} type veth peer name eth0 netns {state.members[name]}\n"
        f"link set v-{name} master br0 up\n"
        for name in names
    )
    _batch(_first(state), outside)
    for name in names:
        address = state.specification.address(name)
        _batch(state.members[name], f"addr add {address}/24 brd + dev eth0\nlink set eth0 up\n")


def _batch(process: int, commands: str) -> None:
    command = ["nsenter", f"--target={process}", "--net", "--", "ip", "-batch", "-"]
    result = subprocess.run(command, input=commands, env=CLEAN_ENVIRONMENT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ClusterError(f"the cluster's network could not be made: {result.stderr.strip()}")


def in_network(state: State, member: str | None, command: Sequence[str]) -> None:
    """Runs a program of the host in the network of a machine, or in that of the bridge.

    Raises:
        ClusterError: It failed.
    """
    process = _first(state) if member is None else state.members[member]
    inside = ["nsenter", f"--target={process}", "--net", "--"]
    result = subprocess.run([*inside, *command], env=CLEAN_ENVIRONMENT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: {result.stderr.strip() or result.returncode}")


def entering(
    state: State, member: str, command: Sequence[str], *, user: str | None = None, folder: str | None = None
) -> list[str]:
    """The command line that runs a command on a machine of the cluster.

    Args:
        state: The cluster.
        member: The machine.
        command: What to run.
        user: As whom, with a login shell as on a site; root without it.
        folder: Where; the user's home by default.
    """
    process = state.members[member]
    join = [str(path / "cgroup.procs") for path in _groups(state, member) if _limits_processors(path.parent.parent)]
    enter = ["nsenter", f"--target={process}", "--mount", "--net", "--uts", "--ipc", "--pid", "--"]
    if user is not None:
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env", "--pdeathsig=TERM"]
        command = [*switch, "--", "bash", "-lc", AS_USER, "bash", folder or f"/home/{user}", *command]
    return ["sh", "-c", JOIN, "sh", *join, "--", *enter, *command]


def _limits_processors(hierarchy: Path) -> bool:
    """Whether the groups of a hierarchy limit processors: `cpu` or `cpu,cpuacct` in version 1, the only one in 2."""
    return "cpu" in hierarchy.name.split(",") or hierarchy == CGROUPS


def _first(state: State) -> int:
    """Process id of the first process in the supervisor's namespaces."""
    found = children(state.supervisor[0]) if state.supervisor else []
    if not found:
        raise ClusterError(
            f"the first process of cluster {state.specification.name!r} is gone: `srunbook cluster down`"
        )
    return found[0]


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
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        raise ClusterError(f"{log.name} did not come up: {said or 'it said nothing'}")


def _group(state: State, member: str) -> Path:
    return Path(f"srunbook-{state.identity}") / member


def _groups(state: State, member: str) -> list[Path]:
    return [Path(path) / member for path in state.groups]


def make_groups(state: State) -> None:
    """Makes a cgroup for every machine in every hierarchy, after they are on record."""
    state.groups = [str(hierarchy / f"srunbook-{state.identity}") for hierarchy in hierarchies()]
    state.enter("recorded")
    for path in state.groups:
        parent = Path(path)
        parent.mkdir(exist_ok=True)
        _inherit(parent)
        _delegate(parent)
        for member in state.specification.members:
            (parent / member).mkdir(exist_ok=True)
            _inherit(parent / member)


def _inherit(group: Path) -> None:
    """Gives a new group of the cpuset hierarchy what its parent has: it begins empty, and nothing could run in it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists() and (group.parent / name).exists():
            (group / name).write_text((group.parent / name).read_text(encoding="ascii"), encoding="ascii")


def _delegate(group: Path) -> None:
    """Lets the groups below one of version 2 limit processors, where this machine's root group does."""
    control = group / "cgroup.subtree_control"
    if control.exists():
        with contextlib.suppress(OSError):  # not delegated here: then only `slow-node` cannot be had, and says so
            control.write_text("+cpu")


def limit_processors(state: State, member: str, quota: float | None) -> None:
    """Limits the processors of a machine to a share of one CPU, or lifts the limit.

    Raises:
        ClusterError: This machine's cgroups cannot do that.
    """
    period = 100_000
    for group in _groups(state, member):
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else int(quota * period)))
            return
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("max" if quota is None else f"{int(quota * period)} {period}")
            return
    raise ClusterError("this machine has no cgroup hierarchy with the cpu controller, so no processor can be limited")


def destroy(state: State, *, timeout: float = 20.0) -> None:
    """Ends every process of the cluster, and with them its namespaces, interfaces and mounts; then its cgroups.

    Args:
        state: The cluster.
        timeout: Seconds to wait for the kernel.

    Raises:
        ClusterError: Something is left after that time.
    """
    deadline = time.monotonic() + timeout
    if state.supervisor is not None and state.alive:
        first = children(state.supervisor[0])
        os.kill(state.supervisor[0], signal.SIGKILL)  # its child is killed with it, by the kernel
        while any(start_time(process) is not None for process in [state.supervisor[0], *first]):
            _wait(deadline, "processes of the cluster are still alive")
    _STARTED[:] = [process for process in _STARTED if process.poll() is None]
    for path in state.groups:
        while Path(path).exists():
            _remove_group(Path(path))
            if Path(path).exists():
                _wait(deadline, f"the cgroup {path} is still in use")
    if state.folder.exists():
        shutil.rmtree(state.folder)


def clear_groups(state: State, member: str) -> None:
    """Removes what jobs left in the cgroups of a machine that has died."""
    for group in _groups(state, member):
        for child in group.iterdir():
            if child.is_dir():
                _remove_group(child)


def _remove_group(path: Path) -> None:
    for child in path.iterdir():
        if child.is_dir():
            _remove_group(child)
    try:
        path.rmdir()
    except OSError:
        return  # still in use: the caller tries again


def _wait(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise ClusterError(f"{what}, although everything was told to end; try `srunbook cluster down` again")
    time.sleep(0.02)
