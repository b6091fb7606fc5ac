"""A site whose limits the scripts of Slurm's own entries meet, and how these scripts are typed."""

from __future__ import annotations

from pathlib import Path

PARTITIONS = """\
PartitionName=DEFAULT Nodes=common
PartitionName=batch Default=YES
PartitionName=short MaxTime=00:30:00
PartitionName=small MaxNodes=1
PartitionName=closed State=DOWN
PartitionName=draining State=DRAIN
PartitionName=one Nodes=single
PartitionName=later Nodes=reserved
PartitionName=repair Nodes=faulty
"""

ACCOUNTS = """\
add qos single MaxJobsPerUser=1
add qos few MaxSubmitJobsPerUser=1
add account research QOS=normal,single,few
add account small-group GrpTRES=cpu=2
add user alice,bob Account=research,small-group DefaultAccount=research
"""

SITE = {
    "nodes": {
        "common": {"count": 2, "gres": ["gpu:a100:4"], "features": ["a100"]},
        "single": {"count": 1},
        "reserved": {"count": 1},
        "faulty": {"count": 1},
    },
    "partitions": PARTITIONS,
    "sacctmgr": ACCOUNTS,
    "slurm.conf": "Prolog=/etc/slurm/prolog.sh\n",
    "files": {"/etc/slurm/prolog.sh": '#!/bin/sh\n[ "$SLURM_JOB_PARTITION" != repair ]\n'},
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
