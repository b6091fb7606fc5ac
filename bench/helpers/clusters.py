"""Clusters to measure on."""

from __future__ import annotations

from srunbook import cluster
from srunbook.cli._checkout import provision


def boot(specification: cluster.Specification) -> cluster.State:
    """Bring a cluster up as the command does: with this checkout at /opt/srunbook, in place of one of the same name."""
    cluster.down(specification.name)
    return cluster.up(specification, provision(), say=print)
