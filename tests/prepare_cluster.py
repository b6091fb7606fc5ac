"""Make the Debian roots and the container image that the tests of the cluster need, before the tests begin.

python tests/prepare_cluster.py            # for the generations that `nox -s slurm` runs on
python tests/prepare_cluster.py all        # for every generation
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from support.published import provision

from srunbook import cluster
from srunbook.cluster._host import check_host, has_cgroup_v1
from srunbook.cluster._roots import ensure_image, ensure_root

say = partial(print, flush=True)


def main(chosen: str = "22.05") -> None:
    """Make what is not there yet. The image needs Apptainer, which only the newest generation has."""
    try:
        check_host(making_root=True)
        if not has_cgroup_v1():
            say("no writable cgroup version 1 hierarchies here: tests of signals and memory limits will fail")
        for generation in cluster.GENERATIONS if chosen == "all" else [chosen]:
            ensure_root(generation, say=say)
        newest = ensure_root(cluster.NEWEST, say=say)
        for image in provision().images:
            ensure_image(newest, image, say=say)
    except cluster.ClusterError as error:
        sys.exit(f"the tests of the cluster cannot begin: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
