"""Three sets are equal: the files that exist, those that pages show, and those that run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from file_table import EXECUTING, runners_of

ROOT = Path(__file__).resolve().parents[2]


def existing(root: Path) -> set[str]:
    """Return the files that somebody wrote to be shown."""
    files = [path for folder in EXECUTING for path in (root / folder).rglob("*") if path.is_file()]
    names = {path.relative_to(root).as_posix() for path in files if path.name != "GALLERY_HEADER.rst"}
    return {name for name in names if "__pycache__" not in name and not name.endswith(".recording.json")}


def test_every_file_is_shown(included):
    """Every file in examples/, slurm/ and scripts/ stands on a page, and every file that a page shows exists."""
    names = existing(ROOT)

    assert len(names) > 10
    assert sorted(names - {*included}) == []
    assert not {name for name in included if not (ROOT / name).is_file()}


@pytest.mark.built
def test_every_file_is_executed():
    """Every file in examples/, slurm/ and scripts/ is run by a driver or by a test."""
    runners = runners_of(ROOT, existing(ROOT))

    assert sorted(name for name in runners if not runners[name]) == []


def test_file_that_is_not_shown_or_not_run(tiny_site):
    """A file that no page shows is found; one that is only mentioned, or that only tests/gpu names, is not run."""
    for name in ("driven.py", "helper.py", "tested.py", "mentioned.py", "on_gpu.py"):
        tiny_site.write(f"examples/guide/{name}", {"driven.py": "import helper\n"}.get(name, "x = 1\n"))
    tiny_site.write(
        "examples/guide/plot_a.py", '"""\nA\n=\n\nSee mentioned.py.\n"""\n# mentioned.py\nRUN = "driven.py"\n'
    )
    tiny_site.write("tests/gpu/test_a.py", 'run("examples/guide/on_gpu.py")\n')
    tiny_site.write(
        "tests/simulation/test_a.py", '"""Beside mentioned.py."""\nGUIDE = ROOT / "guide"\nrun("tested.py")\n'
    )
    tiny_site.page("```{code-file} examples/guide/tested.py\n```")
    build = tiny_site.build()
    included = json.loads(build.site.with_name("site-included.json").read_text())
    names = existing(tiny_site.root)
    runners = runners_of(tiny_site.root, names)

    assert build.returncode == 0, build.output
    assert "examples/guide/mentioned.py" in names - {*included}
    assert "examples/guide/tested.py" not in names - {*included}
    assert {name for name in names if not runners[name]} == {"examples/guide/mentioned.py", "examples/guide/on_gpu.py"}
    assert runners["examples/guide/helper.py"] == {"the build of this site"}


def test_no_doctest_is_skipped():
    """Every example in a docstring runs."""
    files = [
        path
        for name in ("src", "docs/_ext", "recordings", "examples", "scripts", "bench")
        for path in (ROOT / name).rglob("*.py")
    ]
    skipping = re.compile(r"doctest:.*\+SKIP|__doctest_skip__")

    assert [path.name for path in files if skipping.search(path.read_text(encoding="utf-8"))] == []
    assert skipping.search(">>> 1 / 0  # doctest: +ELLIPSIS, +SKIP")
