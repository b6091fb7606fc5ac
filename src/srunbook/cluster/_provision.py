"""What a cluster provides to jobs, as a site does: software, environment modules, container images."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from srunbook.cluster._scripts import Bind
from srunbook.cluster._specification import Specification

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


def running_environment() -> Path | None:
    """Return the virtual environment that this interpreter belongs to, or None."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


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

    environment: Path | None = field(default_factory=running_environment)
    links: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    binds: tuple[Bind, ...] = ()
    modules: Mapping[str, str] = field(default_factory=dict)
    images: tuple[Image, ...] = ()
    environments: Mapping[str, Path] = field(default_factory=dict)

    def of_site(self, specification: Specification) -> Provision:
        """Return it with what a specification has besides: mounts, modules, Python environments."""
        mounts = [Bind(Path(one.source), Path(target), one.writable) for target, one in specification.mounts.items()]
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
    """Tell whether a path of the host is seen at the same place already."""
    return any(bind.source == bind.target and path.is_relative_to(bind.source) for bind in binds)
