"""What we ask of Slurm: the specification of a job, from YAML or from code, and the script for sbatch.

>>> from srunbook import jobs
>>> job = jobs.specify(jobs.Layer("here", {"profile": "small", "script": "train.py"}))
>>> job.specification.nodes, job.specification.devices
(2, 16)
>>> print(jobs.render(job.specification).splitlines()[1])
# JAX on 2 nodes of 8 CPUs: 2 processes, 16 devices.
"""

from __future__ import annotations

from srunbook.jobs._config import parse_config, read_config, settings
from srunbook.jobs._connections import advice, connections
from srunbook.jobs._errors import JobError
from srunbook.jobs._layers import Job, Layer, specify
from srunbook.jobs._presets import CLUSTERS, PROFILES
from srunbook.jobs._render import Explained, explain, render
from srunbook.jobs._specification import SCHEMA_URL, JobSpecification, schema

__all__ = [
    "CLUSTERS",
    "PROFILES",
    "SCHEMA_URL",
    "Explained",
    "Job",
    "JobError",
    "JobSpecification",
    "Layer",
    "advice",
    "connections",
    "explain",
    "parse_config",
    "read_config",
    "render",
    "schema",
    "settings",
    "specify",
]
