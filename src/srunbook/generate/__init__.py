"""The specification of a job, from YAML or from code, and the script for sbatch that is rendered from it.

>>> from srunbook import generate
>>> job = generate.specify(generate.Layer("here", {"profile": "small", "script": "train.py"}))
>>> job.specification.nodes, job.specification.devices
(2, 16)
>>> print(generate.render(job.specification).splitlines()[1])
# JAX on 2 nodes of 8 CPUs: 2 processes, 16 devices.
"""

from __future__ import annotations

from srunbook.generate._connections import advice, connections, warning
from srunbook.generate._layers import JobError, Layer, ResolvedJob, parse_config, read_config, settings, specify
from srunbook.generate._quoting import conda_activation, quote, quote_place
from srunbook.generate._render import ScriptLine, explain, render
from srunbook.generate._rules import rules
from srunbook.generate._specification import PROFILES, SCHEMA_URL, JobSpecification, schema

__all__ = [
    "PROFILES",
    "SCHEMA_URL",
    "JobError",
    "JobSpecification",
    "Layer",
    "ResolvedJob",
    "ScriptLine",
    "advice",
    "conda_activation",
    "connections",
    "explain",
    "parse_config",
    "quote",
    "quote_place",
    "read_config",
    "render",
    "rules",
    "schema",
    "settings",
    "specify",
    "warning",
]
