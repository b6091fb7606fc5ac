"""Sizes to begin from. Everything in them can be changed by a configuration file or by `--set`."""

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
"""Sizes: nodes, CPUs of each, memory of each CPU, time limit."""
# [/profiles]
