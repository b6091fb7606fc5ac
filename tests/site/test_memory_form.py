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

ODD = ["", "7X", "-1", "0", "0.5", "1e9", "7 B", "1.0000001K", "9" * 19, "1" + "0" * 18, "7,000,000", "7,00"]
"""Numbers of parameters that are none, and the largest."""


def answers(fields):
    """Return what the form answers to each set of fields."""
    return node.call(
        CALL, {"module": MODULE.as_uri(), "name": "answer", "calls": [[memory.FORMULAS, each] for each in fields]}
    )


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
        shape = draw.choice([{}, {"layers": "32"}, *[{"layers": "32", "width": "4096", "vocabulary": "32000"}] * 4])
        if shape:
            shape = {**shape, "length": draw.choice(["", "1", "8192", "0"]), "tied": draw.choice(["", "tied"])}
        yield {
            **shape,
            "gpu-memory": draw.choice(["", "24", "80", "100001"]),
            "count": draw.choice(ODD) if draw.random() < 0.2 else written,
            "gpus": str(gpus),
            "sharing": sharing,
            "optimizer": draw.choice(list(memory.OPTIMIZERS)),
            "precision": draw.choice(list(memory.PRECISIONS)),
        }


def command(fields):
    """Return the rows that the command prints, and its last line, or what it says on standard error."""
    options = [f"--{name}={value}" for name, value in fields.items() if value and name not in ("count", "tied")]
    options += ["--tied"] if fields.get("tied") else []
    result = CliRunner().invoke(main, ["memory", *options, "--", fields["count"]])
    assert result.exit_code == (0 if result.stdout else 2)
    lines = result.stdout.splitlines()
    said = lines.pop() if lines and fields["gpu-memory"] else ""
    return ([re.split(r" {2,}", line) for line in lines], said) if lines else result.stderr


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.full)])
def test_both_say_the_same(count):
    """On drawn fields, the form shows what the command prints, and refuses what it refuses."""
    fields = list(drawn_fields(count))
    refused, verdicts = set(), set()
    for given, found in zip(fields, answers(fields), strict=True):
        expected = command(given)
        if isinstance(expected, tuple):
            assert (found.get("rows"), found.get("verdict")) == expected, (given, found)
            verdicts.add(found["verdict"][:12])
            continue
        assert "problem" in found, (given, expected)
        refused.add(found["field"])
        # click refuses an option by itself, before the number of parameters, and in words of its own
        assert found["problem"] in expected or "Invalid value for '--" in expected
    assert refused == {"count", "gpus", "sharing", "gpu-memory", "layers", "length", "vocabulary"}
    assert len(verdicts) > 4, verdicts


@pytest.mark.parametrize(("name", "layout"), [("DDP", 0), ("FSDP", 1), ("FSDP, recomputing", 2)])
def test_a_measured_gpu(name, layout):
    """What the form says is within 10 % of what one H200 held at once, with DDP in 32 bits."""
    measured = read_measurement(MEASURED)
    (row,) = (row for row in measured.configurations if row.name == name)
    given = measured.parameters
    fields = {"count": str(row.parameters["model_parameters"]), "gpus": "2", "sharing": "1", "optimizer": "adamw"}
    fields |= {"layers": str(given["LAYERS"]), "width": str(given["WIDTH"]), "vocabulary": "13"}
    fields |= {"length": str(given["CONTEXT"] * given["sequences"])}  # as one sequence, which takes as much
    (answer,) = answers([{**fields, "precision": "mixed" if layout else "float32"}])

    assert float(answer["rows"][-1][layout + 1]) == pytest.approx(row.median("peak_GB"), rel=0.1)


def test_only_a_page_with_the_form_loads_it(shared_site):
    """A page with the container keeps its text and loads program and style; another page does neither."""
    shared_site.pages({"memory": ":::{container} memory-calculator\nWithout a program.\n:::"})
    built = shared_site.build()

    assert "Without a program." in built.html("memory")
    loaded = [("memory.css" in html, "js/memory.js" in html) for html in (built.html("memory"), built.html())]
    assert loaded == [(True, True), (False, False)]
