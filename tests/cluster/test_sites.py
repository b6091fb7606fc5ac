"""A cluster like a known site: its partitions and accounts are there, and jobs made for the site run on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.published import boot, cluster_name

from srunbook import cluster, generate, sites
from srunbook.cluster import State, read_specification
from srunbook.generate import Layer

SHORT = "lumi"
"""The site that is tried without `--full`."""

NAMES = [
    pytest.param(name, marks=() if name == SHORT else pytest.mark.full) for name in sites.names() if name != "generic"
]
NODES = 8
"""Nodes of each group: as many as the largest profile asks for."""

SHOW = "import os\nprint('rank', os.environ['SLURM_PROCID'], 'of', os.environ['SLURM_NTASKS'])\n"


@pytest.fixture(scope="module", params=NAMES)
def site(request: pytest.FixtureRequest, pytestconfig: pytest.Config, generation: str) -> Iterator[tuple[str, State]]:
    """Boot the cluster of a site."""
    name = cluster_name(pytestconfig, "like", request.param, generation)
    cluster.down(name)
    options = {"name": name, "slurm": generation, "nodes": NODES}
    yield request.param, boot(read_specification(None, options, site=request.param))
    cluster.down(name)


def rendered(**values: Any) -> str:
    """Render the script of a job."""
    return generate.render(generate.specify(Layer("here", values)).specification)


def test_a_script_for_the_site_runs(site: tuple[str, State], tmp_path: Path) -> None:
    """A script that `generate` makes for a site gets its nodes and GPUs there, and each rank runs."""
    name, state = site
    (tmp_path / "show.py").write_text(SHOW, encoding="utf-8")
    script = tmp_path / "site.sbatch"
    size = {"nodes": 2, "time_limit": "00:05:00", "virtual_environment": "~/jax-env"}
    script.write_text(rendered(cluster=name, framework="jax", script="show.py", **size), encoding="utf-8")
    job = cluster.submit(state, script, options=["--exclusive"])
    gpus = int(str(sites.read(name)["gpus_per_node"]).rpartition(":")[2])
    ranks = sorted(int(line.split()[2]) for line in job.output.splitlines() if " of " in line)

    assert (job.state, job.exit_status) == ("COMPLETED", 0), job.output
    assert ranks == list(range(2 * gpus))


def test_slurm_takes_every_profile(site: tuple[str, State], tmp_path: Path) -> None:
    """On the cluster of a site Slurm would take each size and framework, and nothing longer than the site allows."""
    name, state = site
    for profile in generate.PROFILES:
        for framework in ("jax", "torchrun", "lightning"):
            text = rendered(profile=profile, cluster=name, framework=framework, script="train.py")
            (tmp_path / f"{profile}-{framework}.sbatch").write_text(text, encoding="utf-8")
    first, *others = sorted(tmp_path.glob("*.sbatch"))
    there = cluster.stage(state, first, extra=others)
    loop = 'for one in *.sbatch; do sbatch --test-only "$one" >said 2>&1 || { echo "$one"; cat said; }; done'
    result = cluster.capture(state, ["bash", "-c", loop], folder=there)

    assert (result.stdout, result.returncode) == ("", 0)
    if state.specification.partitions[state.specification.default_partition].max_time != "UNLIMITED":
        longer = cluster.capture(state, ["sbatch", "--test-only", "--time=99-0", first.name], folder=there)
        assert "time limit" in longer.stderr.lower()
