"""Programs of others that talk to Slurm find the test cluster to be one.

They come from the package index into an environment of their own, so this is only run with `--full`.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.published import boot, cluster_name

from srunbook import cluster
from srunbook.cluster import Specification, State

pytestmark = pytest.mark.full

PACKAGES = ("submitit", "dask-jobqueue", "snakemake", "snakemake-executor-plugin-slurm")

SUBMITIT = """
import os
import submitit

executor = submitit.AutoExecutor(folder="log")
executor.update_parameters(nodes=2, tasks_per_node=2, timeout_min=5, mem_gb=1)
print(executor.submit(lambda offset: int(os.environ["SLURM_PROCID"]) + offset, 10).results())
executor.update_parameters(nodes=1, tasks_per_node=1)
with executor.batch():
    jobs = [executor.submit(divmod, 7, number) for number in (0, 1, 2)]
print([type(job.exception()).__name__ for job in jobs])
"""

DASK = """
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(cores=1, memory="1GB", walltime="00:05:00", interface="eth0", dashboard_address=None)
    with cluster, Client(cluster) as client:
        cluster.scale(jobs=2)
        client.wait_for_workers(2)
        print(sum(client.gather(client.map(lambda number: number * number, range(10)))))
"""

SNAKEFILE = """
rule total:
    input: expand("{number}.txt", number=range(3))
    output: "total.txt"
    shell: "cat {input} > {output}"

rule square:
    output: "{number}.txt"
    shell: "echo $(( {wildcards.number} * {wildcards.number} )) > {output}"
"""

RULES = """\
snakemake --executor slurm --jobs 3 --slurm-init-seconds-before-status-checks 2 \
    --default-resources slurm_account=research slurm_partition=batch mem_mb=500 runtime=5 >said 2>&1 || cat said
cat total.txt
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install them; return the folder of what can be run."""
    folder = tmp_path_factory.mktemp("foreign", numbered=True) / "environment"
    venv.create(folder, symlinks=True)
    for place in (folder, *list(folder.parents)[:3]):
        place.chmod(0o755)
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*install, *PACKAGES], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def there(pytestconfig: pytest.Config, generation: str, programs: Path) -> Iterator[State]:
    """Boot a cluster of two nodes that sees them."""
    name = cluster_name(pytestconfig, "foreign", generation)
    cluster.down(name)
    mounts = {str(programs.parent): {"source": str(programs.parent)}}
    yield boot(Specification(name=name, slurm=generation, nodes=2, mounts=mounts))
    cluster.down(name)


@pytest.mark.parametrize(
    ("file", "text", "command", "printed"),
    [
        ("submit.py", SUBMITIT, "python submit.py", "[10, 11, 12, 13]\n['FailedJobError', 'NoneType', 'NoneType']\n"),
        ("dasks.py", DASK, "python dasks.py", "285\n"),
        ("Snakefile", SNAKEFILE, RULES, "0\n1\n4\n"),
    ],
    ids=["submitit", "dask-jobqueue", "snakemake"],
)
def test_it_runs_as_on_a_site(there, programs, tmp_path, file, text, command, printed):
    """Jobs over several nodes, arrays, failures, workers and dependencies come back as the program promises."""
    (tmp_path / file).write_text(text)
    folder = cluster.stage(there, tmp_path / file)
    done = cluster.capture(there, ["bash", "-c", f"export PATH={programs}:$PATH; {command}"], folder=folder)

    assert done.stdout == printed, done.stderr
