"""A full disk: `up` says what it needs and leaves nothing, and `down` works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.published import cluster_name

from srunbook.cluster._roots import ensure_root

PROGRAM = """
import os
import pathlib
import shutil
import subprocess
import sys

base, roots, name, slurm = pathlib.Path(sys.argv[1]), *sys.argv[2:]
clusters = base / "srunbook" / "clusters"


def mount(*options):
    subprocess.run(["mount", *options], check=True)


mount("-t", "tmpfs", "-o", "mode=755,size=600m", "tmpfs", str(base))
(base / "srunbook" / "roots").mkdir(parents=True)
mount("--bind", roots, str(base / "srunbook" / "roots"))
os.environ["XDG_CACHE_HOME"] = str(base)

from srunbook import cluster

for files in (4, 8, 20, 24, 27, 1000):
    mount("-o", f"remount,nr_inodes={files}", str(base))
    try:
        cluster.up(cluster.Specification(name=name, slurm=slurm, nodes=1))
        print("up")
    except cluster.ClusterError as error:
        print(error)
        assert not list(clusters.glob("*")), files
try:
    for number in range(1000):
        (base / str(number)).touch()
except OSError as error:
    print(error.strerror)
with (base / "0").open("wb") as stream:
    stream.write(bytes(100 * 2**20))
print(shutil.disk_usage(base).free < 512 * 2**20, cluster.down(name), list(clusters.iterdir()))
"""


def test_a_full_disk(tmp_path, pytestconfig, generation):
    """Wherever `up` runs out of files, it says how much room a cluster needs; `down` needs none."""
    roots = Path(ensure_root(generation).path).parents[1]
    name = cluster_name(pytestconfig, "full")
    command = ["unshare", "--mount", sys.executable, "-c", PROGRAM, str(tmp_path), str(roots), name, generation]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    *refused, booted, full, down = result.stdout.splitlines()
    assert len(refused) == 5
    assert all("no space is left. A cluster needs 0.5 GiB" in line for line in refused), refused
    assert (booted, full, down) == ("up", "No space left on device", "True True []")
    assert list(tmp_path.iterdir()) == []
