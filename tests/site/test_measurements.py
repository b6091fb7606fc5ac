"""Tables and plots drawn from raw samples."""

from __future__ import annotations

import json

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


def directive(name: str, options: str = "", data: str = "allreduce") -> str:
    """Return a directive about one of the files of data."""
    return f"```{{{name}}} bench/results/{data}.json\n{options}\n```"


def changed(row: int, **samples: list[float]) -> dict:
    """Return the data with other samples in one row."""
    data = json.loads(json.dumps(DATA))
    data["configurations"][row]["samples"].update(samples)
    return data


FILES = {
    "allreduce": DATA,
    "equal": changed(1, wall_s=[0.5, 0.25, 1.0]),
    "single": changed(0, sent_MiB=[4.0]),
    "broken": {},
}
PAGES = {
    "table": directive("measured-table", ":parameters: nodes, way"),
    "single": directive("measured-table", ":quantities: sent_MiB"),
    "counted-once": directive("measured-table", ":quantities: wall_s", "equal"),
    "chosen": directive("measured-table", ":parameters: way\n:where: nodes=4"),
    "columns": directive("measured-table", "", "single"),
}
WRONG = {
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
    "no-number": (directive("measured-plot", PLOT.replace("nodes", "way", 1)), "the parameter 'way' is 'pmap'"),
    "no-file": (directive("measured-table", "", "absent"), "bench/results has allreduce.json, broken.json, equal.json"),
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


def test_table(built):
    """A table shows median, smallest and largest sample and their number, and says where they come from."""
    page = built.html("table")

    for text in ("2 (1 to 3, n=3)", "0.5 (n=1)", "not measured", "wall (s)", "sent (MiB)", "cores 2", "jax 0.10.2"):
        assert text in page
    assert list((built.site / "_downloads").rglob("allreduce.json"))


def test_single_samples(built):
    """A table of single samples says so once, not in each cell."""
    page = built.html("single")

    assert "One sample each." in page
    assert "not measured" in page
    assert "n=1" not in page


def test_samples_counted_once(built):
    """Where all series have the same number of samples, the line below says it, and no cell does."""
    page = built.html("counted-once")

    assert "2 (1 to 3)" in page
    assert "0.5 (0.25 to 1)" in page
    assert "Median (smallest to largest of 3 samples)." in page
    assert "n=3" not in page


def test_chosen_rows(built):
    """A table shows the rows with a parameter alone, and the quantities with single samples there are named once."""
    page = built.html("chosen")

    assert "jit" in page
    assert "pmap" not in page
    assert "One sample each." in page


def test_columns_of_single_samples(built):
    """Where some quantities have single samples everywhere, the line below names them, and their cells do not."""
    page = built.html("columns")

    assert "2 (1 to 3, n=3)" in page
    assert "0.5 (n=1)" in page
    assert "4 (n=1)" not in page
    assert "n samples). One sample: sent (MiB)." in page


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
    assert "0.5 (n=1)" in before
    assert "0.25 (n=1)" in again.html()
