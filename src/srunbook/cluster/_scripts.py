"""Shell scripts of the cluster, and what of the host a machine binds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def shell_script(name: str) -> str:
    """Return the text of a shell script."""
    return Path(__file__).with_name("scripts").joinpath(f"{name}.sh").read_text(encoding="utf-8")


MACHINE = f"""\
{shell_script("root")}\
ip link set lo up
echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range # all users may ping, as most distributions have it
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
{shell_script("root")}\
"$@" # as a child: a program with capabilities of its own would no longer die with whoever started it
"""
"""Script of a machine without a cluster, for one command in a root; its first argument is the root."""


@dataclass(frozen=True)
class Bind:
    """A file or folder on the host that a machine of the cluster sees.

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

    The root is not changed: what is written lies in memory, mounted on the empty folder `space`.
    """
    unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--"]
    listed = [item for bind in binds for item in bind.arguments()]
    return [*unshare, "sh", "-c", CHROOT, "sh", lower, "chroot", str(space), "0", "50%", *listed, "--", *command]
