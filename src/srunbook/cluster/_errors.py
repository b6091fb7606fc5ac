"""What can go wrong with a cluster, told apart by whose turn it is."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot do what was asked; the message says why and what to do."""


class SpecificationError(ClusterError):
    """What was asked for is not possible: the message names the value found, what is allowed and an example."""


class RecordError(ClusterError):
    """The record of a cluster cannot be read; `down` clears the cluster away nevertheless."""


class TrustError(ClusterError):
    """Another user could have written what lies in the cache folder."""
