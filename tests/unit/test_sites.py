"""Known sites: one file each, which the commands, their help, their messages and the schema know by being there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from srunbook import sites
from srunbook.cluster import SpecificationError, read_specification
from srunbook.generate import JobSpecification

FOLDER = Path(sites.__file__).parent
DESCRIBED = [name for name in sites.names() if name != "generic"]


@pytest.mark.parametrize("name", DESCRIBED)
def test_site_is_a_cluster(name):
    """The file of a site describes a cluster, and its jobs ask for what the cluster has."""
    found = read_specification(site=name)
    job = sites.read(name)

    assert max(group.count for group in found.groups.values()) <= sites.MOST
    assert set(job) <= set(JobSpecification.model_fields)
    assert "partition" not in job or f"PartitionName={job['partition']} " in found.partitions
    assert "account" not in job or f"add account {job['account']}\n" in found.sacctmgr


def test_a_cluster_has_few_nodes_of_each_group():
    """A site has thousands of nodes, and its cluster so many of each group as are asked for, or all that there are."""
    known = sites.cluster("mila", most=10**6)["nodes"]
    few = read_specification(None, {"nodes": 3, "slurm": "22.05"}, site="mila")

    assert (known["l40s"]["count"], known["h100"]["count"]) == (91, 2)
    assert {name: group.count for name, group in few.groups.items()} == {
        **dict.fromkeys(known, 3),
        "h100": 2,
    }
    assert few.slurm == "22.05"


def test_what_cannot_be():
    """A site that is not there, and options that do not go with one, are refused in a sentence."""
    with pytest.raises(SpecificationError, match="--site: no known site 'Raven'; there are crusoe-like, generic"):
        read_specification(None, {}, site="Raven")
    with pytest.raises(SpecificationError, match="--cpus: cpus is for nodes that are all alike"):
        read_specification(None, {"cpus": 4}, site="ibex")


def test_new_site_takes_one_file(tmp_path):
    """A file more is a site more: in --help, messages and scripts."""
    shutil.copytree(FOLDER.parent, tmp_path / "srunbook", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "srunbook" / "sites" / "here.yaml").write_text("job: {partition: long}\n", encoding="utf-8")

    small = ["generate", "--profile", "small", "--script", "train.py", "--cluster"]
    said = {}
    for words in (["generate", "--help"], ["cluster", "up", "--help"], [*small, "heer"], [*small, "here"]):
        command = [sys.executable, "-c", "from srunbook.cli import main; main()", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        said[words[-2], words[-1]] = done.stdout + done.stderr

    assert "generic, here, ibex" in said["generate", "--help"]
    assert "here" in said["up", "--help"]
    assert "Did you mean here?" in said["--cluster", "heer"]
    assert "#SBATCH --partition=long\n" in said["--cluster", "here"]
