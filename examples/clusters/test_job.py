"""Test a job script on a real Slurm."""

import pytest

from srunbook import cluster

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2
srun hostname
"""


@pytest.fixture(scope="session")
def slurm():
    cluster.down("tests")  # of a run that was killed
    yield cluster.up(cluster.Specification(name="tests", nodes=2))
    cluster.down("tests")


def test_job(slurm, tmp_path):
    (tmp_path / "job.sbatch").write_text(SCRIPT)
    job = cluster.submit(slurm, tmp_path / "job.sbatch")

    assert job.state == "COMPLETED", job.output
    assert sorted(job.output.split()) == ["node1", "node2"]
