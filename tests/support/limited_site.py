"""A site whose limits the scripts of Slurm's own entries meet, and how these scripts are typed."""

from __future__ import annotations

from pathlib import Path

SITE = {
    "nodes": {
        "common": {"count": 2, "gres": ["gpu:a100:4"], "features": ["a100"]},
        "single": {"count": 1},
        "reserved": {"count": 1},
        "faulty": {"count": 1},
    },
    "partitions": {
        "batch": {"nodes": ["common"], "default": True},
        "short": {"nodes": ["common"], "max_time": "00:30:00"},
        "small": {"nodes": ["common"], "max_nodes": 1},
        "closed": {"nodes": ["common"], "options": {"State": "DOWN"}},
        "draining": {"nodes": ["common"], "options": {"State": "DRAIN"}},
        "one": {"nodes": ["single"]},
        "later": {"nodes": ["reserved"]},
        "repair": {"nodes": ["faulty"]},
    },
    "qos": {"single": {"max_jobs_per_user": 1}, "few": {"max_submit_jobs_per_user": 1}},
    "accounts": {"research": {}, "small-group": {"grp_tres": {"cpu": 2}}},
    "prolog": '#!/bin/sh\n[ "$SLURM_JOB_PARTITION" != repair ]\n',
}
"""A site whose limits the scripts meet. What it runs before jobs of the partition `repair` fails."""

MAINTENANCE = "ReservationName=maintenance StartTime=now+1hour Duration=60 Flags=maint Nodes=node4 Users=root"

TYPED = {
    "slurm-options-after-script/broken.sbatch": ([], ["--nodes=2"]),
    "slurm-options-after-script/fixed.sbatch": (["--nodes=2"], []),
}
"""Options of sbatch, and what is typed behind the name of the script, where there is any."""


def typed(source: Path) -> list[str]:
    """Return the command that runs a script."""
    options, arguments = TYPED.get(f"{source.parent.name}/{source.name}", ([], []))
    started = ["bash"] if source.suffix == ".sh" else ["sbatch", *options]
    return [*started, source.name, *arguments]
