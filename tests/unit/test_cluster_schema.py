"""The schema of a cluster's file and the table of its fields are those of the model, and the examples keep to them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML
from support.kept import ROOT, below, kept_in_step, table

from srunbook import cluster
from srunbook.cluster import ClusterStatus, Specification, _specification, _status, read_specification
from srunbook.cluster._status import LimitStatus, NodeStatus, PluginStatus, Told

EXAMPLES = sorted((ROOT / "examples" / "clusters").glob("*.yaml"))
SECTIONS = {
    name if name == "preemption" else f"{name}.{'PATH' if name == 'mounts' else 'NAME'}": model
    for name, model in _specification.SECTIONS.items()
}
PARTS = {"plugins": PluginStatus, "limits": LimitStatus, "nodes[]": NodeStatus}
SAID = ("partitions", "preemption", "accounts", "users")
"""Sections whose description says what they hold by default."""


def test_schema_is_published(pytestconfig):
    """The schema on the site is that of the model."""
    text = json.dumps(cluster.schema(), indent=2) + "\n"
    path = ROOT / "docs" / "_static" / "cluster.schema.json"
    kept_in_step(path, text, pytestconfig.getoption("--record"), __file__)


def test_table_of_fields(pytestconfig):
    """The table of fields on the site is that of the model."""
    text = table([*_specification.keys(Specification).items(), *below(SECTIONS)], SAID)
    kept_in_step(ROOT / "docs" / "reference" / "cluster-schema.csv", text, pytestconfig.getoption("--record"), __file__)


def test_form_of_status(pytestconfig):
    """The schema and the table of what `status --json` prints are those of the model."""
    record = pytestconfig.getoption("--record")
    text = json.dumps(cluster.status_schema(), indent=2) + "\n"
    kept_in_step(ROOT / "docs" / "_static" / "cluster-status.schema.json", text, record, __file__)
    whole = [(info.alias or name, info) for name, info in ClusterStatus.model_fields.items() if info.examples]
    rows = table([*whole, *below(PARTS)], ["schema"])
    kept_in_step(ROOT / "docs" / "reference" / "cluster-status.csv", rows, record, __file__)


def test_every_part_of_status_is_in_the_table():
    """No model of a part of `status --json` is left out of the table."""
    models = {value for value in vars(_status).values() if isinstance(value, type) and issubclass(value, Told)}

    assert models - {Told, ClusterStatus} == set(PARTS.values())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid(path: Path):
    """Each example is a cluster, keeps to the schema, and names the schema in its first line for an editor."""
    values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(cluster.schema())

    assert list(jsonschema.Draft202012Validator(cluster.schema()).iter_errors(values)) == []
    assert read_specification(path).node_names
    assert path.read_text(encoding="utf-8").startswith(f"# yaml-language-server: $schema={cluster.SCHEMA_URL}\n")
