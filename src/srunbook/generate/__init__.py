"""Make the specification of a job, from YAML or from code, and render a script for sbatch from it.

>>> from srunbook import generate
>>> job = generate.specify(generate.Layer("here", {"profile": "small", "script": "train.py"}))
>>> job.specification.nodes, job.specification.devices
(2, 16)
>>> print(generate.render(job.specification).splitlines()[1])
# JAX on 2 nodes of 8 CPUs: 2 processes, 16 devices.
"""

from __future__ import annotations

from srunbook._yaml import Layer
from srunbook.generate.layers import JobError, ResolvedJob, read_config, settings, specify
from srunbook.generate.script import ScriptLine, explain, render
from srunbook.generate.specification import (
    PROFILES,
    SCHEMA_URL,
    JobSpecification,
    advice,
    connections,
    schema,
    warning,
)

__all__ = [
    "PROFILES",
    "SCHEMA_URL",
    "JobError",
    "JobSpecification",
    "Layer",
    "ResolvedJob",
    "ScriptLine",
    "advice",
    "connections",
    "explain",
    "read_config",
    "render",
    "schema",
    "settings",
    "specify",
    "warning",
]
