"""The Apptainer image of JAX: built once from the guide's definition file, and kept in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from srunbook.cluster._errors import ClusterError
from srunbook.cluster._machine import CLEAN_ENVIRONMENT, cache_folder
from srunbook.cluster._namespaces import Bind, in_workshop
from srunbook.cluster._project import checkout
from srunbook.cluster._roots import Root, mirror_of_host
from srunbook.formats import write_whole

DEFINITION = Path("examples/jax_multinode/jax.def")
VARIANT = "cpu"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INDEX_QUERY = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def folder() -> Path:
    """Folder of the images."""
    return cache_folder() / "images"


def index_of_host(python: str) -> str:
    """The index of Python packages that this machine's own pip uses.

    Args:
        python: An interpreter that has pip.
    """
    asked = subprocess.run(
        [python, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    if os.environ.get("PIP_INDEX_URL") or asked.returncode == 0:
        return os.environ.get("PIP_INDEX_URL") or asked.stdout.strip()
    built_in = subprocess.run([python, "-c", INDEX_QUERY], capture_output=True, text=True, check=True)
    return built_in.stdout.strip() + "/"


def ensure_image(root: Root, python: str, *, say: Callable[[str], object] = print) -> Path | None:
    """Finds or builds the image of JAX.

    Args:
        root: The root whose Apptainer builds it.
        python: An interpreter whose pip knows an index of packages.
        say: Where progress is told.

    Returns:
        The image, or None where there is no Apptainer or no definition file.

    Raises:
        ClusterError: It cannot be built.
    """
    project = checkout()
    if "apptainer" not in root.versions or project is None or not (project / DEFINITION).exists():
        return None
    definition = project / DEFINITION
    recipe = hashlib.sha256(definition.read_bytes() + VARIANT.encode()).hexdigest()[:12]
    images = folder()
    images.mkdir(parents=True, exist_ok=True)
    with (images / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        manifest = images / "jax.json"
        image = images / "jax.sif"
        if manifest.exists() and image.exists() and json.loads(manifest.read_text())["recipe"] == recipe:
            return image
        start = time.monotonic()
        say(f"building the image of {DEFINITION} with Apptainer, once; this takes some minutes")
        _build(root, definition, images, {"MIRROR": mirror_of_host(), "INDEX": index_of_host(python)})
        made = {
            "recipe": recipe,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "apptainer": root.versions["apptainer"],
            "variant": VARIANT,
        }
        manifest.unlink(missing_ok=True)
        (images / "work" / "jax.sif").replace(image)
        write_whole(manifest, json.dumps(made, indent=2) + "\n")
        shutil.rmtree(images / "work")
        say(f"image built in {time.monotonic() - start:.0f} s")
        return image


def _build(root: Root, definition: Path, images: Path, arguments: dict[str, str]) -> None:
    work, space = images / "work", images / "space"
    shutil.rmtree(work, ignore_errors=True)  # left by an interrupted building
    (work / "tmp").mkdir(parents=True)
    space.mkdir(exist_ok=True)
    binds = [
        Bind(work, Path("/build"), writable=True),
        Bind(definition.parent, Path("/definition")),
        Bind(Path("/etc/resolv.conf"), Path("/etc/resolv.conf")),
        Bind(Path("/etc/hosts"), Path("/etc/hosts")),
    ]
    options = [f"--build-arg={name}={value}" for name, value in {**arguments, "VARIANT": VARIANT}.items()]
    environment = {**CLEAN_ENVIRONMENT, "APPTAINER_TMPDIR": "/build/tmp", "APPTAINER_CACHEDIR": "/build/tmp"}
    if CERTIFICATES.exists():  # what this machine trusts, its building trusts
        binds.append(Bind(CERTIFICATES, CERTIFICATES))
        options.append(f"--bind={CERTIFICATES}")
    command = ["apptainer", "build", "--fakeroot", *options, "/build/jax.sif", f"/definition/{definition.name}"]
    # In a user namespace root has every capability, whatever this machine withholds; it maps these numbers.
    numbers = work / "subids"
    numbers.write_text("root:100000:65536\n", encoding="ascii")
    binds += [Bind(numbers, Path(f"/etc/{name}")) for name in ("subuid", "subgid")]
    log = images / "build.log"
    with log.open("wb") as stream:
        result = subprocess.run(
            in_workshop(root.path, space, binds, command),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            check=False,
        )
    if result.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:])
        raise ClusterError(f"the image could not be built:\n{tail}\nThe whole log: {log}")
