"""Bring a cluster up, and take it down."""

from __future__ import annotations

import os
import time
from dataclasses import asdict

from srunbook.cluster._cgroups import limit_processors, make_groups
from srunbook.cluster._configuration import choose_plugins
from srunbook.cluster._daemons import await_idle, dead_daemons, start_daemons
from srunbook.cluster._errors import ClusterError, Say, say_nothing
from srunbook.cluster._faults import shape_link
from srunbook.cluster._host import check_host, check_root, has_cgroup_v1, make_folder, reported
from srunbook.cluster._namespaces import connect, destroy, start_machines, start_supervisor
from srunbook.cluster._processes import ending_in_order
from srunbook.cluster._provision import Provision, write_files
from srunbook.cluster._roots import ensure_image, ensure_root
from srunbook.cluster._specification import Specification
from srunbook.cluster._state import State, folder_of, locked, read_state


@reported()
def up(
    specification: Specification,
    provision: Provision | None = None,
    *,
    mirror: str | None = None,
    say: Say = say_nothing,
) -> State:
    """Bring a cluster up; it is safe to do this twice, or after an interrupted `up`.

    In a cluster that is up already, this starts daemons that have died. Ctrl-C, SIGTERM and SIGHUP undo what was made
    so far. After SIGKILL, the next `up` or `down` with that name does this.

    Args:
        specification: The cluster to bring up.
        provision: What it provides to jobs; by default the running virtual environment.
        mirror: Debian mirror for the root and the images, if they are not in the cache.
        say: A function that gets messages about the progress.

    Returns:
        The record of the cluster, once all its nodes are idle.

    Raises:
        ClusterError: The cluster cannot be brought up; nothing is left behind.
    """
    check_host()
    before = os.umask(0o022)  # ordinary users read what this process writes, as on a node
    try:
        with ending_in_order():
            return _up(specification, provision or Provision(), mirror, say)
    finally:
        os.umask(before)


def _up(specification: Specification, provision: Provision, mirror: str | None, say: Say) -> State:
    root = ensure_root(specification.slurm, specification.packages, mirror=mirror, say=say)
    for image in provision.images if "apptainer" in root.versions else ():
        try:
            ensure_image(root, image, mirror=mirror, say=say)
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
            dead = dead_daemons(earlier)
            for machine, daemons in dead.items():
                say(f"dead on {machine}: {', '.join(daemons)}; starting what is dead")
            start_daemons(earlier, [*dead])
            say(f"cluster {specification.name!r} is up already")
            return earlier
        if destroy(specification.name):
            say("cleared away what an interrupted start had left behind")
        started = time.monotonic()
        state = State(specification, root=asdict(root))
        try:
            _make(state, provision)
        except BaseException:
            destroy(specification.name)
            raise
        count, took = len(specification.node_names), time.monotonic() - started
        say(f"idle nodes with Slurm {root.slurm}: {count}, after {took:.1f} s")
        return state


def _make(state: State, provision: Provision) -> None:
    """Make everything, phase by phase; each phase is on record before the next one begins."""
    specification = state.specification
    state.plugins = choose_plugins(state.root["slurm"], cgroup_v1=has_cgroup_v1())
    make_folder(state.space)
    make_groups(state)
    state.binds = [bind.arguments() for bind in write_files(state, provision)]
    start_supervisor(state)
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


@reported()
def down(name: str) -> bool:
    """Take a cluster down, whatever state it and its record are in, and return whether any of it existed.

    This needs no disk space.
    """
    check_root()
    if not folder_of(name).exists():
        return destroy(name)
    with locked(name):
        return destroy(name)
