"""What machines find: software, modules, images, configuration files, users and homes, and what is bound."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook.cluster._configuration import cgroup_conf, gres_conf, hosts, slurm_conf, slurmdbd_conf
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._host import cache_folder, make_folder
from srunbook.cluster._scripts import Bind, shell_script
from srunbook.cluster._sections import USER_IDS
from srunbook.cluster._specification import ACCOUNTS, Specification
from srunbook.cluster._state import State

IMAGES = Path("/opt/images")
"""Folder of the Apptainer images on every machine of the cluster."""


@dataclass(frozen=True)
class Image:
    """An Apptainer image that is built once and kept in the cache.

    Args:
        name: Its name; jobs find the image at `/opt/images/NAME.sif`.
        definition: The definition file; the build sees the folder that contains it.
        arguments: Build arguments of the definition file. In a value, `{mirror}` stands for the Debian mirror of this
            machine and `{index}` for its index of Python packages.
        wheels: A folder of Python packages on the host, which the build sees at `/mnt`.
    """

    name: str
    definition: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    wheels: Path | None = None


@dataclass(frozen=True)
class Provision:
    """What jobs find on every machine of a cluster besides Slurm.

    Args:
        environment: A virtual environment, seen at its own path; by default the running one. The environment module
            `python` puts its programs on PATH.
        links: Names of links to that environment in every home directory.
        files: Contents of files in every home directory, by relative path; users can read but not change them.
        binds: Further files and folders of the host.
        modules: Contents of further environment modules, by name.
        images: Images to build, if the generation has Apptainer.
    """

    environment: Path | None = field(
        default_factory=lambda: Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    )
    links: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    images: tuple[Image, ...] = ()

    def all_binds(self) -> list[Bind]:
        """Return the binds that let an ordinary user on a machine import what we import here.

        The environment keeps its path, because its scripts contain the path. So does the interpreter below
        `sys.base_prefix`. A system interpreter, below /usr, brings only its program and its standard library: the rest
        of /usr comes from the root.
        """
        binds = [*self.binds]
        place = self.environment
        if place and not any(bind.source == bind.target and place.is_relative_to(bind.source) for bind in binds):
            binds.append(Bind(place, place))
        base = Path(sys.base_prefix)
        if base != Path("/usr"):
            return [*binds, Bind(base, base)]
        program, library = (
            base / name / f"python{sys.version_info[0]}.{sys.version_info[1]}" for name in ("bin", "lib")
        )
        return [*binds, Bind(program, program), Bind(library, library), Bind(program, base / "bin" / "python3")]


def write_files(state: State, provision: Provision) -> list[Bind]:
    """Write the configuration and the homes of a cluster.

    Returns:
        What every machine of the cluster gets bound.
    """
    specification = state.specification
    folder, images = state.folder, cache_folder() / "images"
    etc, slurm, modules, logs = (folder / name for name in ("etc", "etc/slurm", "modulefiles", "log/slurm"))
    texts = dict(provision.modules)
    if provision.environment:
        whatis = 'module-whatis "the Python environment of the cluster"'
        texts["python"] = f"#%Module\n{whatis}\nprepend-path PATH {provision.environment}/bin\n"
    root = Path(state.root["path"]) / "etc"
    people = {name: (root / name).read_text(encoding="utf-8").splitlines() for name in ("passwd", "group")}
    number = next(int(line.split(":")[2]) for line in people["passwd"] if line.startswith("slurm:"))
    places = {Path("/etc/slurm"): slurm, Path("/opt/modulefiles"): modules}
    own = {}
    for path in map(Path, specification.files):
        below = next((place for place in places if path.is_relative_to(place)), None)
        own[path] = places[below] / path.relative_to(below) if below else folder / "files" / path.relative_to("/")
    write_texts(
        {
            **{etc / name: text for name, text in _people(people, specification.user_ids).items()},
            etc / "hosts": hosts(specification),
            slurm / "slurmdbd.conf": slurmdbd_conf(),
            **{slurm / name: text for name, text in slurm_files(specification, state.plugins).items()},
            **{modules / name: text for name, text in texts.items()},
            **{own[Path(path)]: text for path, text in specification.files.items()},
        }
    )
    binds = [Bind(Path(mount.source), Path(target), mount.writable) for target, mount in specification.mounts.items()]
    binds += [Bind(source, path) for path, source in own.items() if source.is_relative_to(folder / "files")]
    provision = replace(provision, binds=(*provision.binds, *binds))
    (slurm / "slurmdbd.conf").chmod(0o600)
    logs.mkdir(parents=True, exist_ok=True)
    for path in (slurm / "slurmdbd.conf", logs):
        os.chown(path, number, number)
    for user, uid in specification.user_ids.items():
        home = folder / "home" / user
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        os.chown(home, uid, uid)
        if provision.environment:
            for name in provision.links:
                (home / name).symlink_to(provision.environment)
        write_texts({home / name: text for name, text in provision.files.items()})
    make_folder(images)
    return [
        *(Bind(etc / name, Path("/etc") / name) for name in ("hosts", "passwd", "group")),
        Bind(slurm, Path("/etc/slurm")),
        Bind(modules, Path("/opt/modulefiles")),
        Bind(images, IMAGES),
        Bind(logs, Path("/var/log/slurm"), writable=True),
        Bind(folder / "home", Path("/home"), writable=True),
        Bind(state.space / "scratch", Path("/scratch"), writable=True),
        *provision.all_binds(),
    ]


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write files, and the folders that they lie in; scripts can be run."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)


def slurm_files(specification: Specification, plugins: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of /etc/slurm that every machine reads, by name."""
    return {
        "slurm.conf": slurm_conf(specification, plugins),
        "cgroup.conf": cgroup_conf(plugins, specification.cgroup_conf),
        "gres.conf": gres_conf(specification),
        "task_prolog.sh": shell_script("task_prolog"),
        "sacctmgr": specification.sacctmgr or ACCOUNTS.format(users=",".join(specification.users)),
    }


def _people(lines: Mapping[str, Sequence[str]], users: Mapping[str, int]) -> dict[str, str]:
    """Return passwd and group of the cluster: the lines of its root, with its own users."""
    kept = {name: [line for line in lines[name] if line.split(":")[0] not in USER_IDS] for name in lines}
    if taken := {line.split(":")[0] for name in kept for line in kept[name]} & set(users):
        raise SpecificationError(f"users: Debian has a user or a group {min(taken)} itself; take another name")
    kept["passwd"] += [f"{user}:x:{number}:{number}::/home/{user}:/bin/bash" for user, number in users.items()]
    kept["group"] += [f"{user}:x:{number}:" for user, number in users.items()]
    return {name: "".join(f"{line}\n" for line in kept[name]) for name in kept}
