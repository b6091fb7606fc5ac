"""Tables and plots drawn from raw samples."""

from __future__ import annotations

import json
import re

import pytest

DATA = {
    "command": "python bench/allreduce.py",
    "commit": "abc",
    "date": "2026-11-20",
    "machine": {"cores": 2},
    "versions": {"jax": "0.10.2"},
    "configurations": [
        {"name": "two", "parameters": {"nodes": 2, "way": "pmap"}, "samples": {"wall_s": [1.0, 3.0, 2.0]}},
        {"name": "four", "parameters": {"nodes": 4, "way": "jit"}, "samples": {"wall_s": [0.5], "sent_MiB": [8.0]}},
    ],
}
PLOT = ":x: nodes\n:y: wall_s\n:alt: Wall time falls with nodes."
BARS = ":x: way\n:y: sent_MiB, kept_MiB\n:alt: What is sent and kept."


def directive(name: str, options: str = "", data: str = "allreduce") -> str:
    """Return a directive about one of the files of data."""
    return f"```{{{name}}} bench/results/{data}.json\n{options}\n```"


def changed(row: int, **samples: list[float]) -> dict:
    """Return the data with other samples in one row."""
    data = json.loads(json.dumps(DATA))
    data["configurations"][row]["samples"].update(samples)
    return data


def with_another_row() -> dict:
    """Return the data with a third row, which differs from the first in its nodes."""
    data = json.loads(json.dumps(DATA))
    first = data["configurations"][0]
    return {
        **data,
        "configurations": [
            *data["configurations"],
            {**first, "name": "eight", "parameters": {"nodes": 8, "way": "pmap"}},
        ],
    }


def with_outcomes() -> dict:
    """Return the data with two more rows, which say in words what came of a trial."""
    said = {"plain": "unnoticed", "sealed": "clear error"}
    rows = [
        {"name": name, "parameters": {"library": "DCP", "check": name, "flipped": words}, "samples": {"wall_s": [1.0]}}
        for name, words in said.items()
    ]
    return {**DATA, "configurations": [*DATA["configurations"], *rows]}


def role(text: str) -> str:
    """Return a sentence with a figure."""
    return f"It took {{measured}}`{text}` in all."


FILES = {
    "allreduce": DATA,
    "equal": changed(1, wall_s=[0.5, 0.25, 1.0]),
    "single": changed(0, sent_MiB=[4.0]),
    "same": with_another_row(),
    "broken": {},
    "trials": changed(0, survived_of_30=[28.0]),
    "outcomes": with_outcomes(),
    "kept": changed(1, kept_MiB=[2.0, 4.0]),
}
PAGES = {
    "table": directive("measured-table", ":parameters: nodes, way"),
    "single": directive("measured-table", ":quantities: sent_MiB"),
    "counted-once": directive("measured-table", ":quantities: wall_s", "equal"),
    "chosen": directive("measured-table", ":parameters: way\n:where: nodes=4"),
    "same": directive("measured-table", ":parameters: nodes, way\n:where: way=pmap", "same"),
    "figure": role("bench/results/allreduce.json; two; wall_s"),
    "trials": role("bench/results/trials.json; two; survived_of_30"),
    "outcomes": directive("measured-outcomes", ":columns: library\n:by: check\n\nflipped: Flipped byte", "outcomes"),
    "bars": directive("measured-bars", BARS, "kept"),
    "bars-chosen": directive("measured-bars", f"{BARS}\n:where: nodes=4", "kept"),
}
WRONG = {
    "no-trial": (
        directive("measured-outcomes", ":columns: library\n:by: check\n\nfull: Full disk", "outcomes"),
        "'plain' has no parameter 'full'; it has library, check, flipped",
    ),
    "quantity": (
        directive("measured-table", ":quantities: speed"),
        "no quantity 'speed'; measured were wall_s, sent_MiB",
    ),
    "parameter": (directive("measured-table", ":parameters: gpus"), "'two' has no parameter 'gpus'; it has nodes, way"),
    "no-row": (directive("measured-table", ":where: nodes=3"), "no configuration has nodes=3"),
    "no-row-of-both": (
        directive("measured-table", ":where: nodes=4, way=pmap"),
        "no configuration has nodes=4, way=pmap",
    ),
    "no-alt": (directive("measured-plot", ":x: nodes\n:y: wall_s"), "the option 'alt' is missing"),
    "no-unit": (directive("measured-bars", BARS.replace("kept_MiB", "wall_s"), "kept"), "do not end with one unit of"),
    "no-bars": (directive("measured-bars", f"{BARS}\n:where: nodes=3", "kept"), "no configuration has nodes=3"),
    "no-alt-of-bars": (directive("measured-bars", ":x: way\n:y: sent_MiB"), "the option 'alt' is missing"),
    "no-number": (directive("measured-plot", PLOT.replace("nodes", "way", 1)), "the parameter 'way' is 'pmap'"),
    "no-file": (directive("measured-table", "", "absent"), "bench/results has allreduce.json, broken.json, equal.json"),
    "no-parts": (role("bench/results/allreduce.json; two"), "needs three parts: FILE; CONFIGURATION; QUANTITY"),
    "no-configuration": (
        role("bench/results/allreduce.json; three; wall_s"),
        "no configuration 'three'; measured were two; four",
    ),
    "no-figure": (
        role("bench/results/allreduce.json; two; sent_MiB"),
        "'two' has no quantity 'sent_MiB'; it has wall_s",
    ),
    "no-data": (role("bench/results/absent.json; two; wall_s"), "bench/results has allreduce.json"),
    "no-form": (directive("measured-table", "", "broken"), "field 'command' is missing"),
}


@pytest.fixture(scope="module")
def built(shared_site):
    """Build a site once with all tables, and with figures that cannot be."""
    for name, data in FILES.items():
        shared_site.write(f"bench/results/{name}.json", json.dumps(data))
    shared_site.pages({**PAGES, **{name: body for name, (body, _) in WRONG.items()}})
    return shared_site.build()


def test_whole_tables_are_built(built):
    """The tables whose data is there have no complaints."""
    assert not [line for name in PAGES for line in built.complaints(f"docs/{name}.md")]


def cells(page: str) -> list[list[str]]:
    """Return the markup of each cell of a page's first table, row by row."""
    body = page.split("<tbody>")[1].split("</tbody>")[0]
    return [[re.sub("<[^>]*>|\\s+$", "", cell) for cell in row.split("<td")[1:]] for row in body.split("<tr")[1:]]


def folded(page: str) -> str:
    """Return what one click opens."""
    return page.split('<details class="measured-details')[1].split("</details>")[0]


def test_table(built):
    """A table shows medians alone, to the right; a cell without a sample is empty, and one note says so."""
    page = built.html("table")

    assert [[text.split(">")[-1].strip() for text in row] for row in cells(page)] == [
        ["2", "pmap", "2", ""],
        ["4", "jit", "0.5", "8"],
    ]
    assert page.split("<details")[0].count("figure-cell") == 2 + 4
    assert page.split("<body")[1].count("Empty: not measured, or not applicable.") == 1


def test_ranges_are_one_click_away(built):
    """Ranges, numbers of samples, machine and raw data stand in a part of the page that opens."""
    page = built.html("table").split("<body")[1]

    for text in ("1 to 3, n=3", "0.5, n=1", "wall (s)", "sent (MiB)", "cores 2", "jax 0.10.2", "Raw samples"):
        assert text in folded(page), text
        assert page.count(text) == (2 if text.endswith(("(s)", "(MiB)")) else 1), text
    assert list((built.site / "_downloads").rglob("allreduce.json"))


def test_single_samples(built):
    """A table of single samples says so once, and repeats no table."""
    page = built.html("single")

    assert "One sample each." in folded(page)
    assert page.count("<table") == 1


def test_samples_counted_once(built):
    """Where all series have the same number of samples, the line that opens the ranges says it."""
    assert "Medians of 3 samples." in built.html("counted-once")


def test_chosen_rows(built):
    """A table shows the rows with a parameter alone."""
    page = built.html("chosen")

    assert "jit" in page
    assert "pmap" not in page


def test_columns_that_say_nothing(built):
    """A parameter that is the same in all rows is said once, and a quantity that none of them has is left out."""
    page = built.html("same")

    assert "In all rows: way pmap." in page
    assert "<p>pmap</p>" not in page
    assert "sent (MiB)" not in page


def test_outcomes(built):
    """A trial has a row for each kind of check, and the first of them names it."""
    assert [[text.split(">")[-1].strip() for text in row] for row in cells(built.html("outcomes"))] == [
        ["Flipped byte", "plain", "unnoticed"],
        ["", "sealed", "clear error"],
    ]


def test_figure_in_a_sentence(built):
    """A figure is the median with its unit, or with the number of trials that the quantity names."""
    assert re.search("It took <[^>]*>2 s</span> in all", built.html("figure"))
    assert re.search("It took <[^>]*>28 of 30</span> in all", built.html("trials"))


def test_bars(built):
    """A group of bars stands for each chosen configuration, in both themes, with its quantities in the legend."""
    pages = [built.html(name).split("<article")[1] for name in ("bars", "bars-chosen")]
    names = [re.search(r"kept-\w+-light\.svg", page)[0] for page in pages]
    both, chosen = ((built.site / "_images" / name).read_text(encoding="utf-8") for name in names)

    for theme in ("light", "dark"):
        assert all(f"only-{theme} measured-plot" in page for page in pages)
    for text in (">pmap<", ">jit<", ">sent<", ">kept<", ">MiB<"):
        assert text in both, text
        assert (text in chosen) == (text != ">pmap<"), text
    assert all("Medians; lines reach from the smallest" in page for page in pages)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_figure(built, name):
    """A figure whose data is not there, or has another form, fails the build by name."""
    assert built.returncode != 0
    assert any(f"docs/{name}.md:3" in line for line in built.complaints(WRONG[name][1]))


def test_plot_and_changed_samples(tiny_site):
    """A plot comes as one SVG for each theme, the same at every build; new samples come with the next build."""
    for name in ("allreduce", "other"):
        tiny_site.write(f"bench/results/{name}.json", json.dumps(DATA))
    tiny_site.page(
        directive("measured-plot", f"{PLOT}\n:series: way\n:log: x")
        + "\n\n"
        + directive("measured-table", data="other")
    )
    build = tiny_site.build()
    before = build.html()
    drawn = {path.name: path.read_bytes() for path in (build.site / "_images").glob("allreduce-*.svg")}
    for path in (tiny_site.root / "build" / "doctrees" / "plots").iterdir():
        path.unlink()
    for path in (build.site / "_images").iterdir():
        path.unlink()
    tiny_site.write("bench/results/other.json", json.dumps(DATA).replace("[0.5]", "[0.25]"))

    again = tiny_site.build()

    assert build.returncode == again.returncode == 0, build.output + again.output
    assert before.count('alt="Wall time falls with nodes."') == 2
    for theme in ("light", "dark"):
        assert f"only-{theme}" in before
    assert len(drawn) == 2
    assert drawn == {path.name: path.read_bytes() for path in (build.site / "_images").glob("allreduce-*.svg")}
    assert not any(b"Date" in text or b"fill: #ffffff" in text for text in drawn.values())
    assert "0.5, n=1" in before
    assert "0.25, n=1" in again.html()
