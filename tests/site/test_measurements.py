"""Tables and plots drawn from raw samples."""

from __future__ import annotations

import json

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


def directive(name: str, options: str = "") -> str:
    """A directive about the data above."""
    return f"```{{{name}}} bench/results/allreduce.json\n{options}\n```"


def shown(tiny_site, options="", data=DATA):
    """The page with a table of the data, and the build."""
    tiny_site.write("bench/results/allreduce.json", json.dumps(data))
    tiny_site.page(directive("measured-table", options))
    build = tiny_site.build()
    assert build.returncode == 0, build.output
    return (build.site / "index.html").read_text(), build


def test_table(tiny_site):
    """A table shows median, smallest and largest sample and their number, and says where they come from."""
    page, build = shown(tiny_site, ":parameters: nodes, way")

    for text in ("2 (1 to 3, n=3)", "0.5 (n=1)", "not measured", "wall (s)", "sent (MiB)", "cores 2", "jax 0.10.2"):
        assert text in page
    assert list((build.site / "_downloads").rglob("allreduce.json"))


def test_single_samples(tiny_site):
    """A table of single samples says so once, not in each cell."""
    page, _ = shown(tiny_site, ":quantities: sent_MiB")

    assert "One sample each." in page
    assert "not measured" in page
    assert "n=1" not in page


def test_samples_counted_once(tiny_site):
    """Where all series have the same number of samples, the line below says it, and no cell does."""
    data = json.loads(json.dumps(DATA))
    data["configurations"][1]["samples"]["wall_s"] = [0.5, 0.25, 1.0]

    page, _ = shown(tiny_site, ":quantities: wall_s", data)

    assert "2 (1 to 3)" in page
    assert "0.5 (0.25 to 1)" in page
    assert "Median (smallest to largest of 3 samples)." in page
    assert "n=3" not in page


def test_chosen_rows(tiny_site):
    """A table shows the rows with a parameter alone, and the quantities with single samples there are named once."""
    page, _ = shown(tiny_site, ":parameters: way\n:where: nodes=4")

    assert "jit" in page
    assert "pmap" not in page
    assert "One sample each." in page


def test_columns_of_single_samples(tiny_site):
    """Where some quantities have single samples everywhere, the line below names them, and their cells do not."""
    data = json.loads(json.dumps(DATA))
    data["configurations"][0]["samples"]["sent_MiB"] = [4.0]

    page, _ = shown(tiny_site, data=data)

    assert "2 (1 to 3, n=3)" in page
    assert "0.5 (n=1)" in page
    assert "4 (n=1)" not in page
    assert "n samples). One sample: sent (MiB)." in page


def test_plot(tiny_site):
    """A plot comes as one transparent SVG for each theme, with a text, and the same at every build."""
    tiny_site.write("bench/results/allreduce.json", json.dumps(DATA))
    tiny_site.page(directive("measured-plot", f"{PLOT}\n:series: way\n:log: x"))
    build = tiny_site.build()
    page = (build.site / "index.html").read_text()
    drawn = {path.name: path.read_bytes() for path in (build.site / "_images").glob("allreduce-*.svg")}
    for path in (tiny_site.root / "build" / "doctrees" / "plots").iterdir():
        path.unlink()

    again = tiny_site.build("-E")

    assert build.returncode == again.returncode == 0, build.output
    assert page.count('alt="Wall time falls with nodes."') == 2
    for theme in ("light", "dark"):
        assert f"only-{theme}" in page
    assert len(drawn) == 2
    assert drawn == {path.name: path.read_bytes() for path in (build.site / "_images").glob("allreduce-*.svg")}
    assert not any(b"Date" in text or b"fill: #ffffff" in text for text in drawn.values())


WRONG = {
    "quantity": (
        directive("measured-table", ":quantities: speed"),
        "no quantity 'speed'; measured were wall_s, sent_MiB",
    ),
    "parameter": (directive("measured-table", ":parameters: gpus"), "'two' has no parameter 'gpus'; it has nodes, way"),
    "no-row": (directive("measured-table", ":where: nodes=3"), "no configuration has nodes=3"),
    "no-alt": (directive("measured-plot", ":x: nodes\n:y: wall_s"), "the option 'alt' is missing"),
    "no-number": (directive("measured-plot", PLOT.replace("nodes", "way", 1)), "the parameter 'way' is 'pmap'"),
    "no-file": ("```{measured-table} bench/results/absent.json\n```", "bench/results has allreduce.json, broken.json"),
    "no-form": ("```{measured-table} bench/results/broken.json\n```", "field 'command' is missing"),
}


def test_wrong_figures(tiny_site):
    """A figure whose data is not there, or has another form, fails the build by name."""
    tiny_site.write("bench/results/allreduce.json", json.dumps(DATA))
    tiny_site.write("bench/results/broken.json", "{}")
    tiny_site.pages({name: body for name, (body, _) in WRONG.items()})

    build = tiny_site.build()

    assert build.returncode != 0
    for name, (_, complaint) in WRONG.items():
        assert any(f"docs/{name}.md:3" in line and complaint in line for line in build.output.splitlines()), name


def test_changed_samples(tiny_site):
    """New samples come onto the page with the next build."""
    tiny_site.write("bench/results/allreduce.json", json.dumps(DATA))
    tiny_site.page(directive("measured-table"))
    before = (tiny_site.build().site / "index.html").read_text()
    changed = json.dumps(DATA).replace("[0.5]", "[0.25]")
    tiny_site.write("bench/results/allreduce.json", changed)

    after = (tiny_site.build().site / "index.html").read_text()

    assert "0.5 (n=1)" in before
    assert "0.25 (n=1)" in after
