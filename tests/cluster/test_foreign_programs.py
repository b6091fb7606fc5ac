"""Programs of others that talk to Slurm find the test cluster to be one.

They come from the package index into an environment of their own, so this is only run with `--full`.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proof import login_run
from support.published import boot, cluster_name, programs_of

from recordings.comparing import ROUNDING
from srunbook import cluster
from srunbook.cluster import Specification, State

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ROOT / "slurm" / "runs_that_last" / "sweep.sbatch"
SUBMITTING = ROOT / "examples" / "runs_that_last" / "sweep_submitit.py"

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

RULES = (
    "snakemake --snakefile Snakefile --executor slurm --jobs 4 --keep-going --slurm-init-seconds-before-status-checks 2"
)


def typed(state: State, programs: Path, folder: str, command: str) -> subprocess.CompletedProcess[str]:
    """Type a command on the login node, where the programs are found first, and then torchrun."""
    line = f"export PATH={programs}:$HOME/torch-env/bin:$PATH; {command}"
    return cluster.capture(state, ["bash", "-c", line], folder=folder)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install them beside what is installed here; return the folder of what can be run."""
    folder = tmp_path_factory.mktemp("foreign", numbered=True) / "environment"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
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
    ("file", "text", "printed"),
    [
        ("submit.py", SUBMITIT, "[10, 11, 12, 13]\n['FailedJobError', 'NoneType', 'NoneType']\n"),
        ("dasks.py", DASK, "285\n"),
    ],
    ids=["submitit", "dask-jobqueue"],
)
def test_it_runs_as_on_a_site(there, programs, tmp_path, file, text, printed):
    """Jobs over several nodes, arrays, failures and workers come back as the program promises."""
    (tmp_path / file).write_text(text)
    folder = cluster.stage(there, tmp_path / file)
    done = typed(there, programs, folder, f"python {file}")

    assert done.stdout == printed, done.stderr


def test_sweep_of_the_guide(there, programs, recorded):
    """With submitit and with Snakemake, each row of the table gets a job, one that fails leaves the others alone."""
    folder = cluster.stage(there, SWEEP, extra=programs_of(SWEEP))
    settings = there.folder / folder.removeprefix("/") / "settings.csv"
    published = settings.read_text(encoding="utf-8")
    settings.write_text(published.replace("0.03,16", "30,16"), encoding="utf-8")
    done = typed(there, programs, folder, "python sweep_submitit.py")
    recorded(SUBMITTING, login_run(there, SUBMITTING, "python sweep_submitit.py", done.stdout), masks=ROUNDING)
    assert typed(there, programs, folder, "rm -r runs/5").returncode == 0

    assert typed(there, programs, folder, RULES).returncode == 1
    assert sorted(path.parent.name for path in settings.parent.glob("runs/*/result.json")) == ["1", "2", "3", "4", "5"]
    settings.write_text(published, encoding="utf-8")
    done = typed(there, programs, folder, RULES)
    assert done.returncode == 0, done.stderr
    assert (settings.parent / "results.csv").read_text(encoding="utf-8").count("\n") == 7
