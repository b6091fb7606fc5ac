"""Bringing a cluster up and taking it down."""

from __future__ import annotations

import time
from dataclasses import asdict

from srunbook.cluster._configuration import choose_plugins
from srunbook.cluster._daemons import await_idle, node_states, start_daemons, write_files
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._faults import shape_link
from srunbook.cluster._groups import limit_processors, make_groups
from srunbook.cluster._host import check_host, has_cgroup_v1
from srunbook.cluster._images import ensure_image
from srunbook.cluster._namespaces import (
    connect,
    destroy,
    start_machines,
    start_supervisor,
)
from srunbook.cluster._progress import Say, say_nothing
from srunbook.cluster._provision import Provision
from srunbook.cluster._roots import ensure_root
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State, locked, names, read_state, running_state


def up(
    specification: Specification,
    provision: Provision | None = None,
    *,
    mirror: str | None = None,
    say: Say = say_nothing,
) -> State:
    """Bring a cluster up; it is safe to do so twice, and after an `up` that was interrupted.

    Args:
        specification: What it is to be.
        provision: What it provides to jobs; by default the running virtual environment.
        mirror: Debian mirror for the root, where none is in the cache.
        say: Where progress is told.

    Returns:
        The record of the cluster, all of whose nodes are idle.

    Raises:
        ClusterError: It cannot be; nothing is left behind.
    """
    check_host()
    root = ensure_root(specification.slurm, mirror=mirror, say=say)
    provision = provision or Provision()
    for image in provision.images if "apptainer" in root.versions else ():
        try:
            ensure_image(root, image, say=say)
        except ClusterError as error:
            say(f"the cluster comes up without the image {image.name}, which only container scripts need: {error}")
    with locked(specification.name):
        earlier = read_state(specification.name)
        if earlier and earlier.alive and earlier.phase == "ready":
            if earlier.specification != specification:
                raise ClusterError(
                    f"cluster {specification.name!r} is up with other settings: `srunbook cluster down` first, "
                    "or start another one with --name"
                )
            say(f"cluster {specification.name!r} is up already")
            return earlier
        if earlier:
            say("clearing away what an interrupted start left behind")
            destroy(earlier)
        started = time.monotonic()
        state = State(specification, root=asdict(root))
        try:
            _make(state, provision)
        except BaseException:
            destroy(state)
            raise
        say(f"{specification.nodes} nodes with Slurm {root.slurm} are idle after {time.monotonic() - started:.1f} s")
        return state


def _make(state: State, provision: Provision) -> None:
    """Make everything, phase by phase; each phase is on record before the next one begins."""
    specification = state.specification
    plugins = choose_plugins(state.root["slurm"], cgroup_v1=has_cgroup_v1())
    state.plugins = asdict(plugins)
    state.folder.mkdir(parents=True, exist_ok=True)
    make_groups(state)
    binds = write_files(state, plugins, provision)
    state.binds = [bind.arguments() for bind in binds]
    start_supervisor(state, state.root["path"])
    state.enter("space")
    start_machines(state, specification.machines)
    connect(state, specification.machines)
    state.enter("connected")
    for node in specification.node_names:
        if specification.cpu_quota is not None:
            limit_processors(state, node, specification.cpu_quota)
        if specification.link is not None:
            shape_link(state, node, specification.link)
    start_daemons(state, specification.machines)
    state.enter("started")
    await_idle(state)
    state.enter("ready")


def down(name: str) -> bool:
    """Take a cluster down, whatever state it is in.

    Returns:
        Whether there was anything to take down.

    Raises:
        ClusterError: Something is left.
    """
    check_host()
    with locked(name):
        state = read_state(name)
        if state is None:
            return False
        destroy(state)
        return True


def status(name: str) -> dict[str, str]:
    """Return the states of the nodes of a cluster that is up.

    Raises:
        ClusterError: It is not up.
    """
    return node_states(running_state(name))


__all__ = ["down", "names", "status", "up"]
