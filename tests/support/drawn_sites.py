"""Draw configurations of sites: what `srunbook adapt` and the page's program fit a script to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from support.generated_jobs import FATAL, HOSTILE

SEED = 20261125

VALUES: dict[str, list[Any]] = {
    "cluster": ["raven", "lumi", "mila", "ibex", "generic", "crusoe-like"],
    "partition": ["batch", "gpu", "a,b-2", "0", "long.1", "compute", None],
    "account": ["physics", "my-project", "p_1.x", None],
    "qos": ["short", "normal", "a-b", None],
    "constraint": ["a100", "a100&ib", "a|b", "gpu-bw", None],
    "cpus_per_node": [1, 8, 24, 32, 56, 64, 72, 96, 128, 1024],
    "modules_to_load": [[], ["cuda/12.4"], ["gcc/12", "pytorch/2.13"], ["a", "b", "c"], ["if"], ["x/3.11", "x@1+2"]],
    "virtual_environment": ["~/my-env", "~", "$SCRATCH/a b/env", "/opt/it's", "envs/x", "~/a $b", "$VENV", "/x/é"],
    "conda_environment": ["~/miniforge3/envs/torch-env", "$CONDA/envs/x", "/opt/a b/envs/y", "~/é/envs/if"],
    "container_image": ["$SCRATCH/mine.sif", "~/a.sif", "/images/a b.sif", "$IMAGE", "it's.sif"],
    "platform": ["gpu", "cpu"],
    "network_interface": ["ib0", "hsn0,hsn1", "bond0.12", None],
}
"""Values that a site may have; None is one that it does not want."""

GPUS = [1, 2, 4, 8, "4", "a100:4", "h100:8", "rtx_4090:2", "MI250x.1:3", None]

WRONG = [
    *("partitionn", 'a"b', "a' b", "gpu # x", "a\\b", "b;c", "$(x)", "-p", "x" * 300, "/a:b", "~/a:b/envs/c"),
    *(0, -1, 1025, 1.5, True, ["a b"], ["a", 3, "$(x)"], {"a": 1}, [], "16", " 16", "gpu:4", "cpu", "gup", "ravne"),
    *([[1, [2, [3]]]], [*"abcdefgh"], {"b": [1], "a": {"c": {}}}, "日本" * 60, "a" * 200 + "'", 'it\'s "x"', 10**15),
]
"""Values that no field takes, or few."""

STRANGE = ["partitionn", "gpus", "account ", "Venv", "xyz", "time", "mem-per-cpu", "é", "a\nb"]
"""Keys that do not exist."""


def drawn_site(chance: random.Random) -> dict[str, Any]:
    """Draw one configuration; most are right."""
    often = chance.choice([0.2, 0.5, 0.9])
    config: dict[str, Any] = {
        key: chance.choice(values)
        for key, values in VALUES.items()
        if chance.random() < (0.15 if key in ("cluster", "platform", "network_interface") else often)
    }
    kinds = ["virtual_environment", "conda_environment", "container_image"]
    if chance.random() < 0.9:  # else the three contradict each other
        for key in chance.sample(kinds, 2 if chance.random() < 0.7 else 3):
            config.pop(key, None)
    if chance.random() < often:
        config["gpus_per_node"] = gpus = chance.choice(GPUS)
        if chance.random() < 0.9:
            config["platform"] = "gpu" if gpus else "cpu"
        count = int(str(gpus or 1).rpartition(":")[2])
        if chance.random() < 0.9 and "cpus_per_node" in config:
            config["cpus_per_node"] = count * chance.randint(1, 16)
    if chance.random() < 0.25:
        key = chance.choice([*VALUES, "gpus_per_node", "modules_to_load"])
        wrong = chance.choice([*WRONG, *HOSTILE, *FATAL])
        config[key] = chance.choice([wrong, f"a{wrong}", [wrong]]) if chance.random() < 0.5 else wrong
    if chance.random() < 0.04:
        config[chance.choice(STRANGE)] = "x"
    if chance.random() < 0.03:
        config[chance.choice(["cpus_per_node", *kinds, "modules_to_load", "platform", "cluster"])] = None
    return config


def drawn_sites(count: int, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Draw configurations, the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        yield drawn_site(chance)
