"""The shell scripts that make a machine out of namespaces and a root, and what of the host they bind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SUPERVISOR = """\
set -eu
read -r go # nothing is made before this process is on record; without a word, it ends
space=$1 lower=$2 size=$3
mount --make-rprivate /
mount -t tmpfs -o "mode=755,size=$size" tmpfs "$space"
mkdir "$space/lower" "$space/scratch"
mount --bind "$lower" "$space/lower"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$space/scratch"
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
echo ready
exec sleep infinity </dev/null >/dev/null 2>&1
"""
"""Script of the supervisor; its arguments are the folder for file systems in memory, the root below all others, and
the size of what the machines change in it.
"""

ROOTED = """\
name=$1 space=$2 gpus=$3 shared=$4
shift 4
hostname "$name"
mkdir -p "$space/$name/upper" "$space/$name/work" "$space/$name/root"
cd "$space/$name"
mount -t overlay overlay -o lowerdir=../lower,upperdir=upper,workdir=work root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o "mode=1777,size=$shared" tmpfs tmp
mount --bind tmp var/tmp # nowhere else in a root may users write: what they keep in memory has a size
mount -t tmpfs -o mode=755,size=64m tmpfs run
mount -t tmpfs -o mode=755,size=1m tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o "mode=1777,size=$shared" tmpfs dev/shm
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
[ ! -d sys/fs/cgroup ] || mount -t tmpfs -o mode=755,size=1m tmpfs sys/fs/cgroup
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
"""Make a machine of a root; its arguments are its name, the folder in memory, its GPUs, the size of what it shares
between processes, what is bound, and `--`.
"""

MACHINE = f"""\
set -eu
{ROOTED}\
ip link set lo up
echo ready
exec tini -s -- sleep infinity </dev/null >/dev/null 2>&1
"""
"""Script of a machine of the cluster."""

CHROOT = f"""\
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


HALF = "50%"
"""Size of a file system in memory, as the kernel takes it: half of the machine's memory, its own default."""


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
        """Return it as arguments of the script of a machine."""
        return [str(self.source), str(self.target), "rw" if self.writable else "ro"]


def in_chroot(lower: str, space: Path, binds: Sequence[Bind], command: Sequence[str]) -> list[str]:
    """Return the command line that runs one command in a root, with the host's network; its traces end with it.

    Args:
        lower: The root, which is not changed.
        space: An empty folder to mount on.
        binds: What of the host is seen there.
        command: What to run.
    """
    unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    listed = [item for bind in binds for item in bind.arguments()]
    return [*unshare, "sh", "-c", CHROOT, "sh", lower, "chroot", str(space), "0", HALF, *listed, "--", *command]
