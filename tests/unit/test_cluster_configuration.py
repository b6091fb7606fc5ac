"""The configuration files of the cluster are what the specification asks for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from srunbook.cluster import Bind, Image, Provision, Specification, State, read_state
from srunbook.cluster._configuration import choose_plugins, slurm_conf
from srunbook.cluster._roots import image_recipe
from srunbook.cluster._scripts import shell_script

PLUGINS = choose_plugins("22.05.8", cgroup_v1=True)


def test_own_lines_replace_the_clusters_own():
    """A setting is in slurm.conf once, whatever its case, and what isn't set stays; options of a node do the same."""
    nodes = {"a": {"count": 2, "cpus": 4, "options": "realmemory=99 Weight=2"}}
    text = slurm_conf(Specification(nodes=nodes, **{"slurm.conf": "preemptmode = CANCEL"}), PLUGINS)
    settings = [line.partition("=")[0].strip().lower() for line in text.splitlines()]

    assert settings.count("preemptmode") == settings.count("preempttype") == 1
    assert text.lower().count("realmemory") == 1
    assert text.endswith("preemptmode = CANCEL\n")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, []),  # the batch shell
        ({"SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0"}, ["1"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2", "SLURM_GPUS_ON_NODE": "12"}, ["4"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "4"}, ["1"]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "JAX_NUM_CPU_DEVICES": "8"}, []),
    ],
)
def test_the_task_prolog_divides_the_gpus_of_the_node(tmp_path, environ, said):
    """The TaskProlog exports the GPUs of the node divided by the tasks on it, and leaves a set value alone."""
    file = tmp_path / "prolog.sh"
    file.write_text(shell_script("task_prolog"))
    own = {"PATH": os.environ["PATH"], "OMP_WAIT_POLICY": "active", **environ}
    result = subprocess.run(["bash", file], env=own, capture_output=True, text=True, check=True)

    assert result.stdout.splitlines() == [f"export JAX_NUM_CPU_DEVICES={count}" for count in said]
    assert result.stderr == ""


@pytest.mark.parametrize(("target", "bound"), [("/srv/tree", False), ("/opt/tree", True)])
def test_an_environment_within_a_bound_folder_is_not_bound_twice(target, bound):
    """An environment inside a folder that is bound at its own path is seen already; elsewhere it is not."""
    prefix = Path("/srv/tree/.venv")
    folder = Bind(Path("/srv/tree"), Path(target))

    assert (Bind(prefix, prefix) in Provision(prefix, binds=(folder,)).all_binds()) == bound


def test_an_image_is_built_anew_when_its_arguments_change(tmp_path):
    """Definition file and arguments decide which image it is."""
    definition = tmp_path / "a.def"
    definition.write_text("Bootstrap: debootstrap\n", encoding="utf-8")
    one, other = (image_recipe(Image("a", definition, {"VARIANT": variant})) for variant in ("cpu", "cuda12"))
    definition.write_text("Bootstrap: docker\n", encoding="utf-8")

    assert len({one, other, image_recipe(Image("a", definition, {"VARIANT": "cpu"}))}) == 3


def test_a_record_of_another_version_is_read(tmp_path, monkeypatch):
    """Fields that a record has from another version of srunbook do not keep its cluster from being taken down."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state = State(Specification(name="old"))
    state.folder.mkdir(parents=True)
    state.save()
    record = state.folder / "state.json"
    record.write_text(record.read_text().replace('"identity"', '"project": "x", "identity"'))

    assert read_state("old") == state
