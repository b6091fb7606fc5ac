"""Bringing a cluster up and taking it down."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from srunbook.cluster._configuration import choose_plugins
from srunbook.cluster._daemons import await_idle, node_states, start_daemons, write_files
from srunbook.cluster._errors import ClusterError
from srunbook.cluster._faults import shape_link
from srunbook.cluster._images import ensure_image
from srunbook.cluster._machine import cache_folder, check_machine, has_cgroup_v1
from srunbook.cluster._namespaces import (
    connect,
    destroy,
    limit_processors,
    make_groups,
    start_members,
    start_supervisor,
)
from srunbook.cluster._roots import ensure_root
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State, locked, names, read_state, running_state


def up(specification: Specification, *, mirror: str | None = None, say: Callable[[str], object] = len) -> State:
    """Brings a cluster up; it is safe to do so twice, and after an `up` that was interrupted.

    Args:
        specification: What it is to be.
        mirror: Debian mirror for the root, where none is in the cache.
        say: Where progress is told.

    Returns:
        The record of the cluster, all of whose nodes are idle.

    Raises:
        ClusterError: It cannot be; nothing is left behind.
    """
    check_machine()
    root = ensure_root(specification.slurm, mirror=mirror, say=say)
    try:
        ensure_image(root, sys.executable, say=say)
    except ClusterError as error:
        say(f"the cluster comes up without the image of JAX, which only container scripts need: {error}")
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
            _make(state)
        except BaseException:
            destroy(state)
            raise
        say(f"{specification.nodes} nodes with Slurm {root.slurm} are idle after {time.monotonic() - started:.1f} s")
        return state


def _make(state: State) -> None:
    """Makes everything, phase by phase; each phase is on record before the next one begins."""
    specification = state.specification
    plugins = choose_plugins(state.root["slurm"], cgroup_v1=has_cgroup_v1())
    state.plugins = asdict(plugins)
    state.folder.mkdir(parents=True, exist_ok=True)
    make_groups(state)
    binds = write_files(state, plugins, cache_folder() / "images")
    state.binds = [bind.arguments() for bind in binds]
    start_supervisor(state, state.root["path"])
    state.enter("space")
    start_members(state, specification.members)
    connect(state, specification.members)
    state.enter("connected")
    for node in specification.node_names:
        if specification.cpu_quota is not None:
            limit_processors(state, node, specification.cpu_quota)
        if specification.link is not None:
            shape_link(state, node, specification.link)
    start_daemons(state, specification.members)
    state.enter("started")
    await_idle(state)
    state.enter("ready")


def down(name: str) -> bool:
    """Takes a cluster down, whatever state it is in.

    Returns:
        Whether there was anything to take down.

    Raises:
        ClusterError: Something is left.
    """
    check_machine()
    with locked(name):
        state = read_state(name)
        if state is None:
            return False
        destroy(state)
        return True


def status(name: str) -> dict[str, str]:
    """States of the nodes of a cluster that is up.

    Raises:
        ClusterError: It is not up.
    """
    return node_states(running_state(name))


__all__ = ["down", "names", "status", "up"]
