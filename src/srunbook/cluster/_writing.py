"""The files of a cluster: Slurm's configuration, names and users, homes; and what every machine has bound."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from srunbook._files import write_whole
from srunbook.cluster._associations import accounts_script, limits_script
from srunbook.cluster._cache import cache_folder, make_folder
from srunbook.cluster._configuration import (
    SECOND_USER,
    USER,
    USER_IDS,
    Plugins,
    cgroup_conf,
    gres_conf,
    hosts,
    site_scripts,
    slurm_conf,
    slurmdbd_conf,
)
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._provision import IMAGES, Provision
from srunbook.cluster._scripts import Bind
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State
from srunbook.cluster._task_prolog import task_prolog


def write_files(state: State, plugins: Plugins, provision: Provision) -> list[Bind]:
    """Write the configuration and the homes of a cluster.

    Args:
        state: The cluster.
        plugins: The plugins it runs with.
        provision: What it provides to jobs.

    Returns:
        What every machine of the cluster gets bound.

    Raises:
        ClusterError: Something would be bound into the home of a user.
    """
    specification = state.specification
    provision = provision.of_site(specification)
    provided = provision.all_binds()
    check_targets(provided, specification.users)
    folder = state.folder
    slurm = folder / "etc" / "slurm"
    modules = folder / "modulefiles"
    images = cache_folder() / "images"
    texts = {
        **{folder / "etc" / name: text for name, text in _people(state).items()},
        folder / "etc" / "hosts": hosts(specification),
        slurm / "slurmdbd.conf": slurmdbd_conf(),
        **{slurm / name: text for name, text in slurm_files(specification, plugins).items()},
        **{modules / name: text for name, text in provision.module_files().items()},
    }
    write_texts(texts)
    number = _slurm_number(state)
    os.chown(slurm / "slurmdbd.conf", number, number)
    (slurm / "slurmdbd.conf").chmod(0o600)
    logs = folder / "log" / "slurm"
    logs.mkdir(parents=True, exist_ok=True)
    os.chown(logs, number, number)
    for user, uid in specification.user_ids.items():
        home = folder / "home" / user
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        os.chown(home, uid, uid)
        for name, place in provision.home_links().items():
            (home / name).symlink_to(place)
        for name, text in provision.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
    make_folder(images, 0o755)
    return [
        *(Bind(folder / "etc" / name, Path("/etc") / name) for name in ("hosts", "passwd", "group")),
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


def slurm_files(specification: Specification, plugins: Plugins) -> dict[str, str]:
    """Return the files of /etc/slurm that may change while the cluster is up, by name."""
    return {
        "slurm.conf": slurm_conf(specification, plugins),
        "cgroup.conf": cgroup_conf(plugins, specification.cgroup_conf),
        "gres.conf": gres_conf(specification),
        "task_prolog.sh": task_prolog(),
        "accounts.sh": accounts_script(specification),
        "limits.sh": limits_script(specification),
        **{name: text for _, name, text in site_scripts(specification)},
    }


def check_targets(binds: Iterable[Bind], users: Iterable[str] = (USER, SECOND_USER)) -> None:
    """Refuse what would be bound into the home of a user, who could lead root elsewhere by a link in its place.

    Raises:
        ClusterError: A target lies there.
    """
    users = tuple(users)
    for bind in binds:
        for user in users:
            if bind.target.is_relative_to(f"/home/{user}"):
                raise ClusterError(
                    f"{bind.target} would lie in the home of {user}, a user of the cluster: "
                    "keep srunbook and its environment elsewhere, such as in a folder of /opt"
                )


def _slurm_number(state: State) -> int:
    passwd = Path(state.root["path"]) / "etc" / "passwd"
    for line in passwd.read_text(encoding="utf-8").splitlines():
        fields = line.split(":")
        if fields[0] == "slurm":
            return int(fields[2])
    raise ClusterError(f"{passwd} has no user slurm: remove the folder of this root, and it will be made anew")


def _people(state: State) -> dict[str, str]:
    """Return passwd and group of the cluster: those of its root, with its own users.

    Raises:
        SpecificationError: A user has the name of one that Debian has.
    """
    users = state.specification.user_ids
    etc = Path(state.root["path"]) / "etc"
    kept: dict[str, str] = {}
    for name in ("passwd", "group"):
        lines = (etc / name).read_text(encoding="utf-8").splitlines()
        others = [line for line in lines if line.split(":")[0] not in USER_IDS]
        if taken := {line.split(":")[0] for line in others} & set(users):
            raise SpecificationError(f"users: Debian has a user or a group {min(taken)} itself; take another name")
        kept[name] = "".join(f"{line}\n" for line in others)
    kept["passwd"] += "".join(f"{user}:x:{number}:{number}::/home/{user}:/bin/bash\n" for user, number in users.items())
    kept["group"] += "".join(f"{user}:x:{number}:\n" for user, number in users.items())
    return kept
