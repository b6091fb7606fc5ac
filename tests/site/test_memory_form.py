"""The form about memory: it answers as `srunbook memory` does, and only the page that has one loads its program."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from measurements import read_measurement
from support import node

from srunbook import memory
from srunbook.cli import main

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "docs" / "_static" / "js" / "memory-need.js"
MEASURED = ROOT / "bench" / "results" / "fit_gpu.json"
CALL = ROOT / "tests" / "support" / "call_function.mjs"

ODD = ["", "7X", "-1", "0", "0.5", "1e9", "7 B", "1.0000001K", "9" * 19, "1" + "0" * 18]
"""Numbers of parameters that are none, and the largest."""


def call(name, calls, module=MODULE):
    """Call a function of the form's program several times."""
    return node.call(CALL, {"module": module.as_uri(), "name": name, "calls": calls})


def drawn_fields(count):
    """Draw what readers may type."""
    draw = random.Random(0)
    for _ in range(count):
        digits = str(draw.randrange(10 ** draw.randint(1, 12)))
        decimals = "." + str(draw.randrange(1000)) if draw.random() < 0.5 else ""
        written = digits + decimals + draw.choice(["", "k", "K", "m", "B", "b", "T"])
        gpus = draw.choice([0, 1, 2, 3, 7, 8, 12, 16, 512, 999_983, 1_000_000, 1_000_001])
        divisors = [each for each in (1, 2, 3, 4, 8, 16) if gpus % each == 0]
        sharing = draw.choice(["", "", *map(str, divisors), "5", "0"])
        yield {
            "count": draw.choice(ODD) if draw.random() < 0.2 else written,
            "gpus": str(gpus),
            "sharing": sharing,
            "optimizer": draw.choice(list(memory.OPTIMIZERS)),
            "precision": draw.choice(list(memory.PRECISIONS)),
        }


def command(fields):
    """Return the rows that the command prints, or what it says on standard error."""
    options = [f"--{name}={fields[name]}" for name in ("gpus", "sharing", "optimizer", "precision") if fields[name]]
    result = CliRunner().invoke(main, ["memory", *options, "--", fields["count"]])
    assert result.exit_code == (0 if result.stdout else 2)
    return [re.split(r" {2,}", line) for line in result.stdout.splitlines()] or result.stderr


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.full)])
def test_both_say_the_same(count):
    """On drawn fields, the form shows what the command prints, and refuses what it refuses."""
    fields = list(drawn_fields(count))
    refused = set()
    for given, found in zip(fields, call("answer", [[each] for each in fields]), strict=True):
        expected = command(given)
        assert found.get("rows") == (expected if isinstance(expected, list) else None), (given, expected)
        if "problem" in found:
            refused.add(found["field"])
            # click refuses an option by itself, before the number of parameters, and in words of its own
            assert found["problem"] in expected or "Invalid value for '--" in expected
    assert refused == {"count", "gpus", "sharing"}


def test_choices():
    """The form offers what the command knows, and nothing else."""
    assert call("choices", [[]]) == [{"optimizer": list(memory.OPTIMIZERS), "precision": list(memory.PRECISIONS)}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("adamw: 2n", "adamw: 1n"),
    ],
)
def test_a_changed_rule_is_seen(before, after, tmp_path):
    """A form with another formula does not agree with the command."""
    text = MODULE.read_text(encoding="utf-8")
    assert text.count(before) == 1
    changed = tmp_path / "changed.mjs"
    changed.write_text(text.replace(before, after), encoding="utf-8")
    fields = list(drawn_fields(400))

    found = call("answer", [[each] for each in fields], changed)
    assert any(
        answer.get("rows") != (expected if isinstance(expected := command(each), list) else None)
        for each, answer in zip(fields, found, strict=True)
    )


def test_a_measured_gpu():
    """The form's sum for FSDP is within 1 % of what one GPU held between two steps."""
    (row,) = (row for row in read_measurement(MEASURED).configurations if row.name == "FSDP")
    fields = {"count": str(row.parameters["model_parameters"]), "gpus": "1", "sharing": ""}
    (answer,) = call("answer", [[{**fields, "optimizer": "adamw", "precision": "mixed"}]])
    *_, fsdp = answer["rows"]

    assert float(fsdp[-1]) == pytest.approx(row.median("held_GB"), rel=0.01)


def test_only_a_page_with_the_form_loads_it(shared_site):
    """A page with the container keeps its text and loads program and style; another page does neither."""
    shared_site.pages({"memory": ":::{container} memory-calculator\nWithout a program.\n:::"})
    built = shared_site.build()

    assert "Without a program." in built.html("memory")
    loaded = [("memory.css" in html, "js/memory.js" in html) for html in (built.html("memory"), built.html())]
    assert loaded == [(True, True), (False, False)]
