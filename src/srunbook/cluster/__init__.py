"""A real Slurm of several nodes on one Linux machine, without containers or a second machine.

Each node is a set of namespaces over a Debian root that holds the real Slurm. The command `srunbook cluster`
is a thin layer over these functions.
"""

from __future__ import annotations

from srunbook.cluster import _faults as faults
from srunbook.cluster._commands import FinishedJob, account, await_job, capture, execute, submit
from srunbook.cluster._configuration import SECOND_USER, USER
from srunbook.cluster._errors import ClusterError, SpecificationError
from srunbook.cluster._lifecycle import down, names, status, up
from srunbook.cluster._provision import Image, Provision
from srunbook.cluster._scripts import Bind
from srunbook.cluster._specification import GENERATIONS, NEWEST, Specification
from srunbook.cluster._staging import stage
from srunbook.cluster._state import State, locked, read_state, running_state

__all__ = [
    "GENERATIONS",
    "NEWEST",
    "SECOND_USER",
    "USER",
    "Bind",
    "ClusterError",
    "FinishedJob",
    "Image",
    "Provision",
    "Specification",
    "SpecificationError",
    "State",
    "account",
    "await_job",
    "capture",
    "down",
    "execute",
    "faults",
    "locked",
    "names",
    "read_state",
    "running_state",
    "stage",
    "status",
    "submit",
    "up",
]
