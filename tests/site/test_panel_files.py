"""What the panel writes is what `srunbook adapt --config` reads; its fields and its marks lose nothing."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import script_facts
from support.drawn_sites import drawn_sites
from support.node import call

from srunbook import adapt, generate

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "docs" / "_static"
RUNNER = ROOT / "tests" / "support" / "panel_files.mjs"

KEPT = ("virtual_environment", "conda_environment", "container_image", "network_interface")
"""Fields that keep what each script has where a configuration leaves them empty."""


def allowed(config: dict[str, Any]) -> bool:
    """Tell whether a configuration is right, and says something."""
    try:
        return bool(adapt.site(generate.Layer("here", config)).values)
    except generate.JobError:
        return False


def test_the_file_of_the_panel(tmp_path):
    """Python and the panel read back what the panel writes, and its fields say of the site what the file does."""
    configs = list(islice(filter(allowed, drawn_sites(1000)), 300))
    told = call(RUNNER, {"static": str(STATIC), "known": script_facts.known(), "configs": configs})
    path = tmp_path / "a.yaml"
    for config, said in zip(configs, told, strict=True):
        path.write_bytes(said["text"].encode())
        assert generate.read_config(path).values == config
        assert said["again"] == config
        there, again = (adapt.site(generate.Layer("here", values)).values for values in (config, said["fields"]))
        for key, value in there.items():
            if value is not None or key not in KEPT:
                assert str(again[key]) == str(value), config

    assert len(configs) == 300


def test_vendored_libraries_are_as_released():
    """Each library is the file of its release, with its licence beside it."""
    records = sorted((STATIC / "vendor").glob("*.json"))
    for record in records:
        said = json.loads(record.read_text())
        data = record.with_suffix(".js").read_bytes()
        assert hashlib.sha256(data).hexdigest() == said["sha256"], record.name
        assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
        assert record.with_suffix(".LICENSE").is_file()

    assert records
    assert {record.stem for record in records} == {file.stem for file in (STATIC / "vendor").glob("*.js")}
