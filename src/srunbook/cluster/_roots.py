"""Roots and images: a Debian with Slurm for each generation, and Apptainer images, made once and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from srunbook._files import write_whole
from srunbook._json import read_json
from srunbook.cluster._errors import ClusterError, Say, say_nothing
from srunbook.cluster._host import CLEAN_ENVIRONMENT, cache_folder, check_host, held, make_folder
from srunbook.cluster._provision import Image
from srunbook.cluster._scripts import Bind, in_chroot, shell_script
from srunbook.cluster._sections import GENERATIONS, NEWEST, SUITES, USER_IDS

SLURM = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "munge", "mariadb-server")
TOOLS = ("environment-modules", "python3", "iproute2", "iputils-ping", "hostname", "less", "nano", "procps", "tini")
CONTAINER_PACKAGES = ("apptainer", "charliecloud-runtime", "ca-certificates", "debootstrap", "squashfuse", "uidmap")
"""What only sid has, and needs: two container engines, and what builds and mounts their images."""
SPANK_PACKAGES = ("binutils", "libc6-dev", "libslurm-dev", "tcc")
"""What compiles a SPANK plugin, in sid as well: a small compiler, a linker, and the headers."""

TELL_EVERY = 15.0
"""Seconds between two lines of progress."""

PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "TMPDIR")
"""Variables of this process that debootstrap gets."""


@dataclass(frozen=True)
class Root:
    """A finished root.

    Args:
        path: The tree.
        suite: Debian suite.
        slurm: Version of Slurm in it, such as 22.05.8.
        versions: Versions of its packages that matter.
    """

    path: str
    suite: str
    slurm: str
    versions: dict[str, str]


def packages(suite: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the Debian packages of a root, with those that a specification adds."""
    packages = SLURM + TOOLS + (CONTAINER_PACKAGES + SPANK_PACKAGES if suite == "sid" else ())
    return packages + tuple(name for name in sorted(set(more)) if name not in packages)


def mirror_of_host(sources: Path = Path("/etc/apt")) -> str:
    """Return the Debian mirror that this machine's own apt uses."""
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


def folder_of(suite: str, more: tuple[str, ...] = ()) -> Path:
    """Return the folder of a root; its name has a hash of all that decides what the root becomes."""
    parts = [suite, *packages(suite, more), shell_script("finish_root"), json.dumps(USER_IDS)]
    recipe = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return cache_folder() / "roots" / f"{suite}-{recipe}"


def find_root(suite: str, more: tuple[str, ...] = ()) -> Root | None:
    """Return the finished root of a suite, or None: only a manifest, written last, makes a root finished."""
    manifest, tree = (folder_of(suite, more) / name for name in ("manifest.json", "root"))
    try:
        root = read_json(manifest, Root, ValueError)
    except (ValueError, OSError):
        return None
    return replace(root, path=str(tree)) if tree.is_dir() else None


def ensure_root(slurm: str, more: tuple[str, ...] = (), *, mirror: str | None = None, say: Say = say_nothing) -> Root:
    """Find or make the root of a generation."""
    suite = SUITES[slurm]
    root = find_root(suite, more)
    if root is None:
        check_host(making_root=True)
        url = mirror or mirror_of_host()
        with held(f"root-{folder_of(suite, more).name}", wait=True):
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
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted making left
    tree = make_folder(folder / "root")
    say(f"making a root of Debian {suite} with Slurm, once; this takes 1 to 5 minutes")
    start = time.monotonic()
    names = packages(suite, more)
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(names)}", suite, str(tree), mirror]
    if not Path(f"/usr/share/debootstrap/scripts/{suite}").exists():
        bootstrap.append("/usr/share/debootstrap/scripts/sid")
    users = [item for name, number in USER_IDS.items() for item in (name, str(number))]
    environment = {**CLEAN_ENVIRONMENT, "DEBIAN_FRONTEND": "noninteractive"}
    environment |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    failed = (
        f"the root of Debian {suite} could not be made (this is about Debian's packages or the mirror {mirror}, "
        "not about the cluster)"
    )
    try:
        for command in (bootstrap, ["sh", "-c", shell_script("finish_root"), "sh", str(tree), *users]):
            contained = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", *command]
            _run(contained, environment, cache_folder() / "roots" / f"{suite}.log", failed, say)
        query = ["chroot", str(tree), "dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n", *names]
        shown = subprocess.run(query, env=CLEAN_ENVIRONMENT, capture_output=True, text=True, check=True).stdout
        versions = dict(line.split(" ", 1) for line in shown.splitlines())
        slurm = re.sub(r"^\d+:|[^\d.].*$", "", versions["slurmd"])
        root = Root(str(tree), suite, slurm, versions)
        write_whole(folder / "manifest.json", json.dumps(asdict(root), indent=2) + "\n")
    except BaseException:
        shutil.rmtree(folder)
        raise
    say(f"root of Debian {suite} with Slurm {root.slurm} made in {time.monotonic() - start:.0f} s")
    return root


def _run(command: list[str], environment: dict[str, str], log: Path, failed: str, say: Say) -> None:
    """Run a command that writes to a log, and tell how far it is.

    Whatever ends this process ends the command. An error begins with what failed and has the last lines of the log.
    """
    start = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # what is installed finds no terminal to type on
        )
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(TELL_EVERY)
                continue
            say(f"{time.monotonic() - start:4.0f} s: {_last(log, 1)[0][:100]}")
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise ClusterError("\n".join([f"{failed}:", *_last(log, 8), f"The whole log: {log}"]))


def _last(log: Path, count: int) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:] or [""]


CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def index_of_host() -> str:
    """Return the index of Python packages that this machine's own pip uses."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    return os.environ.get("PIP_INDEX_URL") or answer.stdout.strip() or "https://pypi.org/simple"


def image_recipe(image: Image) -> str:
    """Return a hash of all that decides what an image becomes; another hash means another image."""
    arguments = json.dumps(dict(image.arguments), sort_keys=True)
    return hashlib.sha256(image.definition.read_bytes() + arguments.encode()).hexdigest()[:12]


def ensure_image(root: Root, image: Image, *, mirror: str | None = None, say: Say = say_nothing) -> Path:
    """Find or build an image; return its file on the host."""
    wanted = image_recipe(image)
    images = make_folder(cache_folder() / "images")
    with held("images", wait=True):
        manifest = images / f"{image.name}.json"
        file = images / f"{image.name}.sif"
        if file.exists() and manifest.exists() and json.loads(manifest.read_bytes())["recipe"] == wanted:
            return file
        start = time.monotonic()
        say(f"building the image of {image.definition.name} with Apptainer, once; this takes some minutes")
        places = {"mirror": mirror or mirror_of_host(), "index": index_of_host()}
        _build(root, image, images, {name: value.format(**places) for name, value in image.arguments.items()}, say)
        manifest.unlink(missing_ok=True)
        (images / "work" / file.name).replace(file)
        write_whole(manifest, json.dumps({"recipe": wanted}) + "\n")
        shutil.rmtree(images / "work")
        say(f"image built in {time.monotonic() - start:.0f} s")
        return file


def _build(root: Root, image: Image, images: Path, arguments: dict[str, str], say: Say) -> None:
    work, space = images / "work", images / "space"
    shutil.rmtree(work, ignore_errors=True)  # left by an interrupted building
    (work / "tmp").mkdir(parents=True)
    space.mkdir(exist_ok=True)
    binds = [
        Bind(work, Path("/build"), writable=True),
        Bind(image.definition.parent, Path("/definition")),
        Bind(Path("/etc/resolv.conf"), Path("/etc/resolv.conf")),
        Bind(Path("/etc/hosts"), Path("/etc/hosts")),
    ]
    options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    environment = {**CLEAN_ENVIRONMENT, "APPTAINER_TMPDIR": "/build/tmp", "APPTAINER_CACHEDIR": "/build/tmp"}
    if CERTIFICATES.exists():  # what this machine trusts, its building trusts
        binds.append(Bind(CERTIFICATES, CERTIFICATES))
        options.append(f"--bind={CERTIFICATES}")
    if image.wheels:
        binds.append(Bind(image.wheels, Path("/mnt")))
        options.append("--bind=/mnt")
    command = ["apptainer", "build", "--fakeroot", *options]
    command += [f"/build/{image.name}.sif", f"/definition/{image.definition.name}"]
    # In a user namespace root has every capability, whatever this machine withholds; it maps these numbers.
    numbers = work / "subids"
    numbers.write_text("root:100000:65536\n", encoding="ascii")
    binds += [Bind(numbers, Path(f"/etc/{name}")) for name in ("subuid", "subgid")]
    _run(
        in_chroot(root.path, space, binds, command),
        environment,
        images / "build.log",
        "the image could not be built",
        say,
    )
