"""Apptainer images: built once from their definition files, and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from srunbook._files import write_whole
from srunbook.cluster._cache import cache_folder, held, make_folder, trusted
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._host import CLEAN_ENVIRONMENT
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._provision import Image
from srunbook.cluster._roots import Root, mirror_of_host
from srunbook.cluster._scripts import Bind, in_chroot

CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INDEX_QUERY = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def folder() -> Path:
    """Return the folder of the images."""
    return cache_folder() / "images"


def index_of_host(python: str) -> str:
    """Return the index of Python packages that this machine's own pip uses.

    Args:
        python: An interpreter that has pip.

    Raises:
        ClusterError: It has not.
    """
    asked = subprocess.run(
        [python, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    if os.environ.get("PIP_INDEX_URL") or asked.returncode == 0:
        return os.environ.get("PIP_INDEX_URL") or asked.stdout.strip()
    built_in = subprocess.run([python, "-c", INDEX_QUERY], capture_output=True, text=True, check=False)
    if built_in.returncode != 0:
        raise ClusterError(f"{python} has no pip, whose index of Python packages the image needs: set PIP_INDEX_URL")
    return built_in.stdout.strip() + "/"


def recipe(image: Image) -> str:
    """Return a hash of all that decides what an image becomes; another hash means another image."""
    arguments = json.dumps(dict(image.arguments), sort_keys=True)
    return hashlib.sha256(image.definition.read_bytes() + arguments.encode()).hexdigest()[:12]


def ensure_image(root: Root, image: Image, *, mirror: str | None = None, say: Say = say_nothing) -> Path:
    """Find or build an image.

    Args:
        root: The root whose Apptainer builds it.
        image: What to build.
        mirror: Debian mirror; by default that of this machine's apt.
        say: Where progress is told.

    Returns:
        The file of the image on the host.

    Raises:
        TrustError: Another user could have written the image.
        ClusterError: The definition file cannot be read, or the image cannot be built.
    """
    try:
        wanted = recipe(image)
    except OSError as error:
        raise ClusterError(f"the definition file {image.definition} cannot be read: {error.strerror}") from None
    images = make_folder(folder(), 0o755)
    with held(images, wait=True):
        manifest = trusted(images / f"{image.name}.json")
        file = trusted(images / f"{image.name}.sif")
        if file.exists() and _made_by(manifest) == wanted:
            return file
        start = time.monotonic()
        say(f"building the image of {image.definition.name} with Apptainer, once; this takes some minutes")
        places = {"mirror": mirror or mirror_of_host(), "index": index_of_host(sys.executable)}
        arguments = {name: value.format(**places) for name, value in image.arguments.items()}
        _build(root, image, images, arguments)
        made = {
            "recipe": wanted,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "apptainer": root.versions["apptainer"],
            "arguments": dict(image.arguments),
        }
        manifest.unlink(missing_ok=True)
        (images / "work" / file.name).replace(file)
        write_whole(manifest, json.dumps(made, indent=2) + "\n")
        shutil.rmtree(images / "work")
        say(f"image built in {time.monotonic() - start:.0f} s")
        return file


def _made_by(manifest: Path) -> str | None:
    """Return the recipe of an image in the cache, or None where its manifest is missing or broken."""
    try:
        return str(json.loads(manifest.read_bytes())["recipe"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _build(root: Root, image: Image, images: Path, arguments: dict[str, str]) -> None:
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
    log = images / "build.log"
    with log.open("wb") as stream:
        result = subprocess.run(
            in_chroot(root.path, space, binds, command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,  # what is installed finds no terminal to type on
            check=False,
        )
    if result.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        raise ClusterError(f"the image could not be built:\n{tail}\nThe whole log: {log}")
