"""Sizes and sites to begin from. Everything in them can be changed by a configuration file or by `--set`."""

from __future__ import annotations

from typing import Any

# [profiles]
PROFILES: dict[str, dict[str, Any]] = {
    "debug": {"nodes": 1, "cpus_per_node": 4, "memory_per_cpu": "2G", "time_limit": "00:10:00", "exclusive": False},
    "small": {"nodes": 2, "cpus_per_node": 8, "memory_per_cpu": "2G", "time_limit": "00:30:00"},
    "medium": {"nodes": 4, "cpus_per_node": 16, "memory_per_cpu": "4G", "time_limit": "02:00:00"},
    "large": {"nodes": 8, "cpus_per_node": 16, "memory_per_cpu": "4G", "time_limit": "04:00:00"},
    "production": {"nodes": 8, "cpus_per_node": 32, "memory_per_cpu": "8G", "time_limit": "12:00:00"},
}
"""Sizes: nodes, CPUs, memory, time."""
# [/profiles]

# [clusters]
CLUSTERS: dict[str, dict[str, Any]] = {
    # Nothing but Slurm's own words.
    "generic": {},
    # KAUST's Ibex, whose nodes many share; GPUs by the feature a100.
    "ibex": {
        "platform": "gpu",
        "gpus_per_node": 4,
        "cpus_per_node": 16,
        "constraint": "a100",
        "exclusive": False,
    },
    # MPCDF's Raven: whole nodes of four A100 and 72 CPUs, 18 for each process; gpu-bw has 400 Gbit/s in place of 200.
    "raven": {
        "platform": "gpu",
        "gpus_per_node": "a100:4",
        "cpus_per_node": 72,
        "memory_per_node": "500000M",
        "constraint": "gpu-bw",
        "exclusive": False,
    },
    # Rented nodes of eight GPUs under a Slurm of one's own, as Crusoe sets it up: a home on NFS that all nodes see.
    "crusoe-like": {
        "platform": "gpu",
        "gpus_per_node": 8,
        "cpus_per_node": 32,
        "virtual_environment": "~/.venv",
    },
}
"""Sites: what a node has there, and how the site calls it. They win over a profile, which knows no site."""
# [/clusters]
