"""A real Slurm of several nodes on one Linux machine, without containers or a second machine.

Each node is a set of namespaces over a Debian root that holds the real Slurm. The command `srunbook cluster`
is a thin layer over these functions.

`up` boots a cluster from a `Specification`, and returns its `State`, which most other functions take; `running_state`
finds the state of a running cluster. `submit` runs a job script to its end, `capture` runs a command, `faults` breaks
things, and `down` removes the cluster. All of this needs Linux and root.
"""

from __future__ import annotations

from srunbook.cluster import _faults as faults
from srunbook.cluster._commands import capture, execute
from srunbook.cluster._daemons import dead_daemons, node_states
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._host import Limits
from srunbook.cluster._jobs import FinishedJob, await_job, stage, submit
from srunbook.cluster._lifecycle import down, up
from srunbook.cluster._provision import Image, Provision
from srunbook.cluster._scripts import Bind
from srunbook.cluster._sections import GENERATIONS, NEWEST, SECOND_USER, USER
from srunbook.cluster._specification import Specification, read_specification
from srunbook.cluster._state import State, locked, names, read_state, running_state
from srunbook.cluster._status import ClusterStatus, NodeStatus, describe

__all__ = [
    "GENERATIONS",
    "NEWEST",
    "SECOND_USER",
    "USER",
    "Bind",
    "ClusterError",
    "ClusterStatus",
    "FinishedJob",
    "Image",
    "Limits",
    "NodeStatus",
    "Provision",
    "Specification",
    "SpecificationError",
    "State",
    "await_job",
    "capture",
    "dead_daemons",
    "describe",
    "down",
    "execute",
    "faults",
    "locked",
    "names",
    "node_states",
    "read_specification",
    "read_state",
    "running_state",
    "stage",
    "submit",
    "up",
]
