"""The page's program adapts every job script as `srunbook adapt` does: the same text, changes, notes and refusals."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import script_facts
from support.drawn_scripts import drawn_scripts
from support.drawn_sites import drawn_sites
from support.node import call

from srunbook import adapt, generate
from srunbook.script import ScriptError

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "docs" / "_static" / "js"
RUNNER = ROOT / "tests" / "support" / "adapt_engines.mjs"

PUBLISHED = [path for folder in ("slurm", "examples", "src") for path in sorted((ROOT / folder).rglob("*.sbatch"))]
FOREIGN = [
    ROOT / "examples" / "adapt" / "pretrain.sh",
    *sorted((ROOT / "tests" / "support" / "foreign_scripts").iterdir()),
]
ODD = [
    "#!/bin/bash\r\n#SBATCH -p gpu\r\nsource ~/x/bin/activate\r\n",
    '#!/bin/bash\n#SBATCH -p gpu   # é: 👩\nVENV=/é\n"$VENV/bin/python" x.py',
    "#!/bin/bash",
    "#!/usr/bin/env python3\n#SBATCH -p gpu\nprint('x')\n",
    "#!/bin/bash\n#PBS -N x\n",
    "#!/bin/bash\n#SBATCH -p 'gpu\n",
    "#!/bin/bash\n#SBATCH -Hp a -G v100:8 -N 2\nif x; then module load a; fi\n",
    "#!/bin/bash\nset -euo pipefail\nmodule load a\nmodule load b; conda activate x\nsrun -p gpu -n 3 python x\n",
    "#!/bin/bash\n#SBATCH --gres=gpu:2,nvme:1 -n 4 -N 2\nN=2\nsrun torchrun --nproc_per_node=$N x.py\n",
    "#!/bin/bash\n#SBATCH --gpus-per-task=1 --ntasks-per-node=9 --part\\ ition=x\nI=a.sif\nsrun apptainer exec $I x\n",
]
"""What the published scripts do not have."""


def texts() -> list[bytes]:
    """Return all scripts in UTF-8."""
    drawn = list(drawn_scripts(12, odd=0.02))
    return [*(path.read_bytes() for path in (*PUBLISHED, *FOREIGN)), *(text.encode() for text in ODD), *drawn]


def node_answers(folder: Path, scripts: list[bytes], configs: list[dict[str, Any]]) -> list[Any]:
    """Return what the page's program says to each configuration."""
    facts = [script_facts.facts(script) for script in scripts]
    told = {"folder": str(folder), "known": script_facts.known(), "scripts": facts, "configs": configs}
    found: list[Any] = call(RUNNER, told)
    return found


def python_answer(config: dict[str, Any], scripts: list[bytes]) -> dict[str, Any]:
    """Return what Python says to a configuration, in the same form."""
    try:
        site = adapt.site(generate.Layer("here", config))
    except generate.JobError as error:
        return {"refused": list(error.problems)}
    return {"scripts": [adapted(script, site) for script in scripts]}


def adapted(script: bytes, site: adapt.Site) -> dict[str, Any]:
    """Adapt a script with Python."""
    try:
        made = adapt.adapt(script, site)
    except ScriptError as error:
        return {"line": error.line, "problem": error.problem}
    return {
        "text": made.data.decode(),
        "changes": [vars(change) for change in made.changes],
        "notes": [list(note) for note in made.notes],
    }


def test_both_engines_agree():
    """On drawn configurations, every script comes out the same, and what is refused is refused in the same words."""
    scripts, configs = texts(), list(drawn_sites(40))
    seen: Counter[str] = Counter()
    for config, said in zip(configs, node_answers(ENGINE, scripts, configs), strict=True):
        expected = python_answer(config, scripts)
        assert said.get("refused") == expected.get("refused"), config
        if "refused" in said:
            seen["refused"] += 1
            continue
        for script, mine, other in zip(scripts, expected["scripts"], said["scripts"], strict=True):
            assert other == mine, (config, script.decode())
            seen["not understood" if "problem" in mine else "changed" if mine["changes"] else "as it was"] += 1

    assert len(PUBLISHED) > 45
    assert seen["refused"] > 4
    assert min(seen["not understood"], seen["as it was"]) > 40
    assert seen["changed"] > 800


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("adapt-gpus.js", "found.count === 1 ? 1 : site.gpus", "site.gpus"),
        ("job-contradictions.js", 'job.platform === "cpu" && gpus > 0', "false"),
    ],
)
def test_a_changed_rule_is_seen(file, before, after, tmp_path):
    """An engine in which one rule is another does not agree."""
    folder = tmp_path / "js"
    shutil.copytree(ENGINE, folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert before in text
    (folder / file).write_text(text.replace(before, after), encoding="utf-8")
    scripts, configs = texts()[::8], list(drawn_sites(100))

    answers = node_answers(folder, scripts, configs)
    assert any(said != python_answer(config, scripts) for config, said in zip(configs, answers, strict=True))
