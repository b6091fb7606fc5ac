"""Roots: a Debian with Slurm for each generation, made once by debootstrap and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from srunbook._files import write_whole
from srunbook._json import read_json
from srunbook.cluster._cache import FULL, cache_folder, clear_folder, held, make_folder, trusted
from srunbook.cluster._configuration import USER_IDS
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._host import CLEAN_ENVIRONMENT, check_host
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._values import GENERATIONS, NEWEST, suite_of

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "munge",
    "mariadb-server",
    "environment-modules",
    "python3",
    "iproute2",
    "iputils-ping",
    "hostname",
    "less",
    "nano",
    "procps",
    "tini",
)
CONTAINER_PACKAGES = ("apptainer", "ca-certificates", "debootstrap", "squashfuse", "uidmap")
"""What only sid has, and needs: Apptainer, and what builds and mounts its images."""

FINISH = """\
set -eu
root=$1
shift
while [ $# -gt 0 ]; do
    chroot "$root" useradd --uid "$2" --user-group --no-create-home --shell /bin/bash "$1"
    shift 2
done
echo /opt/modulefiles > "$root/etc/environment-modules/modulespath"
mkdir -p "$root/opt/modulefiles" "$root/opt/images" "$root/scratch" "$root/var/log/slurm"
mkdir -p "$root/var/spool/slurmd" "$root/var/spool/slurmctld"
chroot "$root" chown slurm: /var/log/slurm /var/spool/slurmctld
if [ -e "$root/usr/bin/apptainer" ]; then
    chroot "$root" apptainer config global --set "root default capabilities" no
    [ -L "$root/usr/bin/singularity" ] || ln -s apptainer "$root/usr/bin/singularity"
fi
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
"""
"""What is done to a root after debootstrap; its arguments are the root, then names and numbers of users."""


@dataclass(frozen=True)
class Root:
    """A finished root.

    Args:
        path: The tree.
        suite: Debian suite.
        slurm: Version of Slurm in it, such as 22.05.8.
        date: When it was made.
        recipe: Hash of how it was made.
        versions: Versions of its packages that matter.
    """

    path: str
    suite: str
    slurm: str
    date: str
    recipe: str
    versions: dict[str, str]


def packages(suite: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the Debian packages of a root, with those that a specification adds."""
    own = PACKAGES + (CONTAINER_PACKAGES if suite == "sid" else ())
    return own + tuple(name for name in sorted(set(more)) if name not in own)


def recipe(suite: str, more: tuple[str, ...] = ()) -> str:
    """Return a hash of all that decides what a root becomes; another hash means another root."""
    parts = [suite, *packages(suite, more), FINISH, json.dumps(USER_IDS)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def mirror_of_host(sources: Path = Path("/etc/apt")) -> str:
    """Return the Debian mirror that this machine's own apt uses.

    Args:
        sources: Folder of apt's configuration.

    Raises:
        ClusterError: None is configured there.
    """
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    for file in files:
        if not file.is_file():
            continue
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            match = re.match(r"URIs:\s*(\S+)", line) or re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)", line)
            if match and re.fullmatch(r"https?://\S+/debian/?", match[1]):
                return match[1].rstrip("/")
    raise ClusterError(
        f"no Debian mirror in {sources}/sources.list or sources.list.d: give one, as in --mirror http://HOST/debian"
    )


def check_mirror(mirror: str) -> str:
    """Check the URL of a mirror, as far as that can be done without asking the mirror.

    Raises:
        SpecificationError: It is not a URL of http, https or file, or names no host or no folder.
    """
    if not re.fullmatch(r"(https?|file)://[A-Za-z0-9._~:/%@-]+", mirror):
        raise SpecificationError(f"mirror {mirror!r} is not a URL such as http://HOST/debian")
    parts = urlsplit(mirror)
    if parts.scheme != "file" and not parts.hostname:
        raise SpecificationError(f"mirror {mirror!r} names no host, as in http://HOST/debian")
    if parts.scheme == "file" and not Path(parts.path, "dists").is_dir():
        raise SpecificationError(f"mirror {mirror!r}: there is no folder {parts.path}/dists, as a mirror of Debian has")
    return mirror


def folder_of(suite: str, more: tuple[str, ...] = ()) -> Path:
    """Return the folder of the root that today's recipe makes of a suite."""
    return cache_folder() / "roots" / f"{suite}-{recipe(suite, more)}"


def find_root(suite: str, more: tuple[str, ...] = ()) -> Root | None:
    """Return the finished root of a suite, or None: only a manifest, written last, makes a root finished.

    Raises:
        TrustError: Another user could have written it.
    """
    manifest, tree = (trusted(folder_of(suite, more) / name) for name in ("manifest.json", "root"))
    try:
        root = read_json(manifest, Root, ValueError)
    except (ValueError, OSError):
        return None
    return replace(root, path=str(tree)) if tree.is_dir() else None


def ensure_root(slurm: str, more: tuple[str, ...] = (), *, mirror: str | None = None, say: Say = say_nothing) -> Root:
    """Find or make the root of a generation.

    Args:
        slurm: Generation, or `newest`.
        more: Debian packages that it has besides those of every root.
        mirror: Debian mirror; by default that of this machine's apt.
        say: Where progress is told.

    Raises:
        SpecificationError: The mirror is no URL.
        TrustError: Another user could have written it.
        ClusterError: It cannot be made, or holds another generation than was asked for.
    """
    suite = suite_of(slurm)
    root = find_root(suite, more)
    if root is None:
        check_host(making_root=True)
        url = check_mirror(mirror) if mirror else mirror_of_host()
        with held(folder_of(suite, more), wait=True):
            root = find_root(suite, more) or _make_root(suite, more, url, say)
    wanted = slurm if slurm in GENERATIONS else ""
    if not root.slurm.startswith(wanted):
        raise ClusterError(
            f"Debian {suite} no longer holds Slurm {slurm}: its packages are {root.slurm}. Use --slurm {NEWEST}, "
            f"or give a mirror that still holds it, as in --mirror http://HOST/debian"
        )
    return root


def _make_root(suite: str, more: tuple[str, ...], mirror: str, say: Say) -> Root:
    """Make a root in a folder that counts for nothing until its manifest is there."""
    folder = folder_of(suite, more)
    clear_folder(folder)  # what an interrupted making left
    tree = make_folder(folder / "root", 0o755)
    say(f"making a root of Debian {suite} with Slurm, once; this takes a minute or two")
    start = time.monotonic()
    log = cache_folder() / "roots" / f"{suite}.log"
    include = ",".join(packages(suite, more))
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={include}", suite, str(tree), mirror]
    if not Path(f"/usr/share/debootstrap/scripts/{suite}").exists():
        bootstrap.append("/usr/share/debootstrap/scripts/sid")
    users = [item for name, number in USER_IDS.items() for item in (name, str(number))]
    try:
        with log.open("wb") as stream:
            for command in (bootstrap, ["sh", "-c", FINISH, "sh", str(tree), *users]):
                _contained(command, stream)
        root = _describe(suite, more, tree)
    except (subprocess.CalledProcessError, OSError) as error:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:] if log.exists() else []
        clear_folder(folder)
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise ClusterError(
            f"the root of Debian {suite} could not be made (this is about Debian's packages or the mirror {mirror}, "
            f"not about the cluster): {error}\n" + "\n".join(tail) + f"\nThe whole log: {log}"
        ) from None
    except BaseException:
        clear_folder(folder)
        raise
    write_whole(folder / "manifest.json", json.dumps(asdict(root), indent=2) + "\n")
    say(f"root of Debian {suite} with Slurm {root.slurm} made in {time.monotonic() - start:.0f} s")
    return root


def _contained(command: list[str], log: IO[bytes]) -> None:
    """Run a command whose mounts and processes end with it, also when it is killed.

    Raises:
        OSError: It failed.
    """
    prefix = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--"]
    environment = {**CLEAN_ENVIRONMENT, "DEBIAN_FRONTEND": "noninteractive"}
    for name in ("http_proxy", "https_proxy", "no_proxy", "TMPDIR"):
        if name in os.environ:
            environment[name] = os.environ[name]
    result = subprocess.run(
        [*prefix, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # what is installed finds no terminal to type on
        check=False,
    )
    if result.returncode != 0:
        raise OSError(f"{command[0]} ended with status {result.returncode}")


def _describe(suite: str, more: tuple[str, ...], tree: Path) -> Root:
    query = [
        "chroot",
        str(tree),
        "dpkg-query",
        "--show",
        "--showformat",
        "${Package} ${Version}\\n",
        *packages(suite, more),
    ]
    result = subprocess.run(query, env=CLEAN_ENVIRONMENT, capture_output=True, text=True, check=True)
    versions = dict(line.split(" ", 1) for line in result.stdout.splitlines())
    match = re.match(r"(?:\d+:)?(\d+\.\d+\.\d+)", versions["slurmd"])
    if not match:
        raise OSError(f"the version of slurmd, {versions['slurmd']!r}, is of no known form")
    return Root(
        str(tree), suite, match[1], datetime.now(UTC).isoformat(timespec="seconds"), recipe(suite, more), versions
    )
