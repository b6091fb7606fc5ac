"""A cluster's configuration file is read, and what is wrong in it is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.kept import ROOT, below, kept_in_step, table

from srunbook.cli.cluster import command as cli
from srunbook.cluster import Specification, SpecificationError, State, _specification, read_specification, read_state

GOOD = """\
slurm: 22.05
nodes:
  gpu: {count: 2, cpus: 8, memory: 32G, gres: [gpu:a100:4], features: [a100]}
  fat: {count: 1, cpus: 4, memory: 128G}
partitions: |
  PartitionName=batch Nodes=gpu Default=YES MaxTime=04:00:00
sacctmgr: |
  add qos short MaxTRESPerUser=gres/gpu=2
"""


def read(folder: Path, text: str, **options: object) -> Specification:
    path = folder / "cluster.yaml"
    path.write_text(text, encoding="utf-8")
    return read_specification(path, options)


def refused(folder: Path, text: str, **options: object) -> str:
    with pytest.raises(SpecificationError) as caught:
        read(folder, text, **options)
    return str(caught.value).replace(f"{folder}/", "")


def test_groups_are_counted_through(tmp_path):
    """Groups of nodes follow each other."""
    found = read(tmp_path, GOOD)

    assert found.slurm == "22.05"
    assert found.node_names == ("node1", "node2", "node3")
    assert found.group_of("node3").memory_mib == 128 * 1024


def test_options_are_the_same_specification(tmp_path):
    """What an option says wins over the file, and a cluster of options alone equals one of a file."""
    text = "slurm: 22.05\nnodes:\n  a: {count: 3}\n"

    assert read(tmp_path, text, slurm="24.11", nodes=2) == read_specification(None, {"slurm": "24.11", "nodes": 2})
    assert read(tmp_path, "nodes: 2\ncpus: 8\n") == read_specification(None, {"nodes": 2, "cpus": 8})
    assert read_specification() == Specification()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: 2\npartition: x\n", "cluster.yaml:2: unknown key 'partition'; did you mean partitions?"),
        ("nodes:\n  a: {count: 1}\n  b:\n    cuont: 2\n    count: 1\n", ":4: unknown key 'cuont'; did you mean count?"),
        ("nodes: 0\n", ":1: nodes is 0. The nodes: a number from 1 to 256"),
        ("cpus: 4\nnodes:\n  a: {count: 1}\n", ":1: cpus is for nodes that are all alike"),
        ("nodes: 1\nnodes: 2\n", ":2: while constructing a mapping found duplicate key"),
        ("mounts:\n  /a/../etc: {source: .}\n", ":2: '/a/../etc' can't be a key of mounts"),
        ("partitions: {batch: {}}\n", ":1: partitions is {'batch': {}}. The PartitionName lines of slurm.conf"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, said):
    """Each mistake is named with file and line, what was found and what is meant or allowed."""
    assert said in refused(tmp_path, text)


def test_all_mistakes_are_told_at_once(tmp_path):
    """Two mistakes make two lines."""
    assert refused(tmp_path, "nods: 2\nuser: [a]\n").splitlines() == [
        "cluster.yaml:1: unknown key 'nods'; did you mean nodes?",
        "cluster.yaml:2: unknown key 'user'; did you mean users?",
    ]


def test_relative_folders_begin_at_the_file(tmp_path):
    """A mount with a relative path is found beside the file, wherever the command is started."""
    (tmp_path / "data").mkdir()
    found = read(tmp_path, "mounts:\n  /shared: {source: ./data, writable: true}\n")

    assert found.mounts["/shared"].source == str(tmp_path / "data")


def test_the_record_has_the_whole_specification(tmp_path, monkeypatch):
    """What is recorded of a cluster is read back as it was, with groups, and without the file."""
    specification = read(tmp_path, GOOD + "name: kept\nslurm.conf: |\n  MaxArraySize=10\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state = State(specification)
    state.folder.mkdir(parents=True)
    state.save()

    assert read_state("kept").specification == specification


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slurm", "22x05"], "--slurm: slurm is '22x05'. Generation of Slurm"),
        (["--name", "../x"], "name is '../x'"),
    ],
)
def test_a_bad_option_is_refused(tmp_path, options, said):
    """A bad option ends with status 2 and a sentence, and leaves nothing."""
    result = CliRunner(env={"XDG_CACHE_HOME": str(tmp_path)}).invoke(cli, ["up", *options])

    assert result.exit_code == 2
    assert said in result.stderr
    assert not list(tmp_path.rglob("*"))


def test_table_of_fields(pytestconfig):
    """The table of fields on the site is that of the model."""
    sections = {"nodes.NAME": _specification.NodeGroup, "mounts.PATH": _specification.Mount}
    text = table([*_specification.keys(Specification).items(), *below(sections)], ["partitions"])
    kept_in_step(ROOT / "docs" / "reference" / "cluster-schema.csv", text, pytestconfig.getoption("--record"), __file__)
