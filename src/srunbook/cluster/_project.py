"""What the nodes see of the host: the checkout, the Python environment and its interpreter, all read-only."""

from __future__ import annotations

import sys
from pathlib import Path

import srunbook
from srunbook.cluster._namespaces import Bind

PROJECT = Path("/opt/srunbook")
"""Where the nodes see the checkout."""


def checkout() -> Path | None:
    """The checkout that this package is run from, or None where it was installed from a wheel."""
    folder = Path(srunbook.__file__).resolve().parents[2]
    return folder if (folder / "pyproject.toml").exists() and (folder / "slurm").is_dir() else None


def environment() -> Path | None:
    """The virtual environment that this interpreter belongs to, or None."""
    return Path(sys.prefix) if sys.prefix != sys.base_prefix else None


def project_binds() -> list[Bind]:
    """What is bound into every machine of the cluster so that an ordinary user there imports what we import here.

    The environment keeps its path, since its scripts name it. So do the interpreter below `sys.base_prefix` and the
    checkout, which an editable installation points to. An interpreter of the system, below /usr, brings only its
    program and its standard library: the rest of /usr is the root's own.
    """
    binds = []
    found = checkout()
    if found:
        binds += [Bind(found, PROJECT), Bind(found, found)]
    prefix = environment()
    if prefix and not (found and prefix.is_relative_to(found)):
        binds.append(Bind(prefix, prefix))
    base = Path(sys.base_prefix)
    if base == Path("/usr"):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        program, library = base / "bin" / version, base / "lib" / version
        binds += [Bind(program, program), Bind(library, library)]
        binds.append(Bind(program, base / "bin" / "python3"))
    else:
        binds.append(Bind(base, base))
    return binds
