"""What machines find: software, modules, images, configuration files, users and homes, and what is bound."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from srunbook._files import write_whole
from srunbook.cluster._accounting import scripts
from srunbook.cluster._cache import cache_folder, make_folder
from srunbook.cluster._configuration import (
    cgroup_conf,
    gres_conf,
    hosts,
    site_scripts,
    slurm_conf,
    slurmdbd_conf,
)
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._scripts import Bind, shell_script
from srunbook.cluster._sections import USER_IDS
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State

IMAGES = Path("/opt/images")
"""Folder of the Apptainer images on every machine of the cluster."""


@dataclass(frozen=True)
class Image:
    """An Apptainer image that is built once and kept in the cache.

    Args:
        name: Jobs find it at `/opt/images/NAME.sif`.
        definition: The definition file; the folder that holds it is what the building sees.
        arguments: Build arguments of the definition file. In a value, `{mirror}` stands for the Debian mirror of this
            machine and `{index}` for its index of Python packages.
        wheels: A folder of Python packages on the host, which the building sees at `/mnt`.
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
        links: Names in every home that lead to that environment.
        files: Texts of files in every home, by path below it; their users can read them, and not change them.
        binds: Further files and folders of the host.
        modules: Texts of further environment modules, by name.
        images: Images to build, where the generation has Apptainer.
        environments: Further Python environments, by the name that they have in every home and as modules.
    """

    environment: Path | None = field(
        default_factory=lambda: Path(sys.prefix) if sys.prefix != sys.base_prefix else None
    )
    links: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    environments: Mapping[str, Path] = field(default_factory=dict)

    def of_site(self, specification: Specification) -> Provision:
        """Return it with what a specification has besides: mounts, modules, Python environments."""
        mounts = [
            Bind(Path(mount.source), Path(target), mount.writable) for target, mount in specification.mounts.items()
        ]
        return replace(
            self,
            binds=(*self.binds, *mounts),
            modules={**self.modules, **specification.modules},
            environments={**self.environments, **{name: Path(at) for name, at in specification.environments.items()}},
        )

    def home_links(self) -> dict[str, str]:
        """Return the links that every home has, by name, and where they lead."""
        links = dict.fromkeys(self.links, str(self.environment)) if self.environment else {}
        return {**links, **{name: str(place) for name, place in self.environments.items()}}

    def all_binds(self) -> list[Bind]:
        """Return what is bound so that an ordinary user on a machine imports what we import here.

        The environment keeps its path, since its scripts name it. So does the interpreter below `sys.base_prefix`.
        An interpreter of the system, below /usr, brings only its program and its standard library: the rest of /usr
        is the root's own.
        """
        binds = [*self.binds]
        if self.environment and not _is_seen(self.environment, binds):
            binds.append(Bind(self.environment, self.environment))
        base = Path(sys.base_prefix)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        binds += _interpreter(base, version)
        if base == Path("/usr"):
            binds.append(Bind(base / "bin" / version, base / "bin" / "python3"))
        for place in self.environments.values():
            program = (place / "bin" / "python").resolve()
            more = [] if _is_seen(place, binds) else [Bind(place, place)]
            more += [] if program.is_relative_to(place) else _interpreter(program.parents[1], program.name)
            binds += [bind for bind in more if bind not in binds and not _is_seen(bind.target, binds)]
        return binds

    def module_files(self) -> dict[str, str]:
        """Return the text of each environment module by its path below the folder of modules.

        >>> Provision(environment=Path("/there/env")).module_files()["python"].splitlines()[-1]
        'prepend-path PATH /there/env/bin'
        """
        files = dict(self.modules)
        if self.environment:
            whatis = 'module-whatis "the Python environment of the cluster"'
            files["python"] = f"#%Module\n{whatis}\nprepend-path PATH {self.environment}/bin\n"
        for name, place in self.environments.items():
            files[name] = f'#%Module\nmodule-whatis "a Python environment"\nprepend-path PATH {place}/bin\n'
        return files


def _interpreter(base: Path, version: str) -> list[Bind]:
    """Return what a virtual environment needs of the interpreter that it was made with."""
    if base != Path("/usr"):
        return [Bind(base, base)]
    return [Bind(path, path) for path in (base / "bin" / version, base / "lib" / version)]


def _is_seen(path: Path, binds: Iterable[Bind]) -> bool:
    """Return whether a path of the host is already seen at the same place."""
    return any(bind.source == bind.target and path.is_relative_to(bind.source) for bind in binds)


def write_files(state: State, provision: Provision) -> list[Bind]:
    """Write the configuration and the homes of a cluster.

    Returns:
        What every machine of the cluster gets bound.
    """
    specification = state.specification
    provision = provision.of_site(specification)
    provided = provision.all_binds()
    check_targets(provided, specification.users)
    folder, images = state.folder, cache_folder() / "images"
    etc, slurm, modules, logs = (folder / name for name in ("etc", "etc/slurm", "modulefiles", "log/slurm"))
    root = Path(state.root["path"]) / "etc"
    people = {name: (root / name).read_text(encoding="utf-8").splitlines() for name in ("passwd", "group")}
    number = next(int(line.split(":")[2]) for line in people["passwd"] if line.startswith("slurm:"))
    write_texts(
        {
            **{etc / name: text for name, text in _people(people, specification.user_ids).items()},
            etc / "hosts": hosts(specification),
            slurm / "slurmdbd.conf": slurmdbd_conf(),
            **{slurm / name: text for name, text in slurm_files(specification, state.plugins).items()},
            **{modules / name: text for name, text in provision.module_files().items()},
        }
    )
    (slurm / "slurmdbd.conf").chmod(0o600)
    logs.mkdir(parents=True, exist_ok=True)
    for path in (slurm / "slurmdbd.conf", logs):
        os.chown(path, number, number)
    for user, uid in specification.user_ids.items():
        home = folder / "home" / user
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        os.chown(home, uid, uid)
        for name, place in provision.home_links().items():
            (home / name).symlink_to(place)
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
        *provided,
    ]


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write files, and the folders that they lie in; shell scripts can be run."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)


def slurm_files(specification: Specification, plugins: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of /etc/slurm that every machine reads, by name."""
    accounts, limits = scripts(specification)
    return {
        "slurm.conf": slurm_conf(specification, plugins),
        "cgroup.conf": cgroup_conf(plugins, specification.cgroup_conf),
        "gres.conf": gres_conf(specification),
        "task_prolog.sh": shell_script("task_prolog"),
        "accounts.sh": accounts,
        "limits.sh": limits,
        **{name: text for _, name, text in site_scripts(specification)},
    }


def check_targets(binds: Iterable[Bind], users: Iterable[str]) -> None:
    """Refuse what would be bound into the home of a user."""
    for bind, user in product(binds, users):
        if bind.target.is_relative_to(f"/home/{user}"):
            raise ClusterError(
                f"{bind.target} would lie in the home of {user}, a user of the cluster: "
                "keep srunbook and its environment elsewhere, such as in a folder of /opt"
            )


def _people(lines: Mapping[str, Sequence[str]], users: Mapping[str, int]) -> dict[str, str]:
    """Return passwd and group of the cluster: the lines of its root, with its own users."""
    kept = {name: [line for line in lines[name] if line.split(":")[0] not in USER_IDS] for name in lines}
    if taken := {line.split(":")[0] for name in kept for line in kept[name]} & set(users):
        raise SpecificationError(f"users: Debian has a user or a group {min(taken)} itself; take another name")
    kept["passwd"] += [f"{user}:x:{number}:{number}::/home/{user}:/bin/bash" for user, number in users.items()]
    kept["group"] += [f"{user}:x:{number}:" for user, number in users.items()]
    return {name: "".join(f"{line}\n" for line in kept[name]) for name in kept}
