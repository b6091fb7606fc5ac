"""Tables, figures and plots on pages are drawn from raw samples, and say what they rest on."""

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


def directive(name: str, options: str = "", data: str = "allreduce") -> str:
    """Return a directive about one of the files of data."""
    return f"```{{{name}}} bench/results/{data}.json\n{options}\n```"


def changed(row: int, **samples: list[float]) -> dict:
    """Return the data with other samples in one row."""
    data = json.loads(json.dumps(DATA))
    data["configurations"][row]["samples"].update(samples)
    return data


def role(text: str) -> str:
    """Return a sentence with a figure."""
    return f"It took {{measured}}`{text}` in all."


FILES = {
    "allreduce": DATA,
    "trials": changed(0, survived_of_30=[28.0]),
}
PAGES = {
    "table": directive("measured-table", ":parameters: nodes, way"),
    "figure": role("bench/results/allreduce.json; two; wall_s"),
    "trials": role("bench/results/trials.json; two; survived_of_30"),
}
WRONG = {
    "quantity": (directive("measured-table", ":quantities: speed"), "no quantity 'speed'; there are wall_s, sent_MiB"),
    "no-row": (directive("measured-table", ":where: nodes=3"), "no configuration has nodes=3"),
    "no-alt": (directive("measured-plot", ":x: nodes\n:y: wall_s"), "the option 'alt' is missing"),
    "no-file": (directive("measured-table", "", "absent"), "bench/results has allreduce.json, scaling.json"),
    "no-configuration": (
        role("bench/results/allreduce.json; three; wall_s"),
        "no configuration 'three'; there are two, four",
    ),
    "no-figure": (
        role("bench/results/allreduce.json; two; sent_MiB"),
        "no quantity 'sent_MiB'; there are wall_s",
    ),
}


TIMES = {("100mbit", 1): 4.0, ("100mbit", 2): 3.2, ("300mbit", 1): 4.0, ("300mbit", 2): 2.5}
SCALING = {
    "command": "python bench/scaling.py",
    "commit": "abc",
    "date": "2026-11-20",
    "machine": {"cores": 2, "cpu_quota": 0.5},
    "versions": {"torch": "2.13.0"},
    "parameters": {"batch": 64},
    "configurations": [
        {"name": f"{link} {nodes}", "parameters": {"link": link, "nodes": nodes}, "samples": {"step_s": [time] * 10}}
        for (link, nodes), time in TIMES.items()
    ],
}
STRONG = ":kind: strong\n:where: link=300mbit\n:alt: Two nodes are faster than one."


def scaling_table(options: str) -> str:
    """Return a directive about these data."""
    return f"```{{scaling-table}} bench/results/scaling.json\n{options}\n```"


WRONG_SCALING = {
    "no-kind": (":alt: what", "the option 'kind' is missing"),
    "no-such": (":kind: strong\n:alt: what\n:where: link=1gbit", "no configuration has link=1gbit"),
}


@pytest.fixture(scope="module")
def built(shared_site):
    """Build a site once with all tables, and with figures that cannot be."""
    for name, data in FILES.items():
        shared_site.write(f"bench/results/{name}.json", json.dumps(data))
    shared_site.write("bench/results/scaling.json", json.dumps(SCALING))
    wrong = {name: body for name, (body, _) in WRONG.items()}
    wrong |= {name: scaling_table(options) for name, (options, _) in WRONG_SCALING.items()}
    shared_site.pages({**PAGES, "scaling": scaling_table(STRONG), **wrong})
    return shared_site.build()


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

    assert not [line for name in PAGES for line in built.complaints(f"docs/{name}.md")]
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


def test_figure_in_a_sentence(built):
    """A figure is the median with its unit, or with the number of trials that the quantity names."""
    assert re.search("It took <[^>]*>2 s</span> in all", built.html("figure"))
    assert re.search("It took <[^>]*>28 of 30</span> in all", built.html("trials"))


@pytest.mark.parametrize("name", [*WRONG, *WRONG_SCALING])
def test_wrong_figure(built, name):
    """A figure whose data is not there, or has another form, fails the build by name."""
    assert built.returncode != 0
    assert any(f"docs/{name}.md:3" in line for line in built.complaints({**WRONG, **WRONG_SCALING}[name][1]))


def test_plot_and_changed_samples(tiny_site):
    """A plot comes as one SVG for each theme, new samples come with the next build, and all details fold together."""
    for name in ("allreduce", "other"):
        tiny_site.write(f"bench/results/{name}.json", json.dumps(DATA))
    plot = directive("measured-plot", f"{PLOT}\n:series: way\n:log:")
    tiny_site.page(f"{plot}\n\n{directive('measured-table', data='other')}\n\nNext: more.")
    build = tiny_site.build()
    before = build.html()
    tiny_site.write("bench/results/other.json", json.dumps(DATA).replace("[0.5]", "[0.25]"))
    again = tiny_site.build()

    assert build.returncode == again.returncode == 0, build.output + again.output
    assert before.count('alt="Wall time falls with nodes."') == 2
    assert all(f"only-{theme}" in before for theme in ("light", "dark"))
    assert len([*(build.site / "_images").glob("allreduce-*.svg")]) == 2
    assert "0.5, n=1" in before
    assert "0.25, n=1" in again.html()
    shown, details = before.split('<details class="measured-details')
    assert 'href="#measured-2">Ranges, numbers of samples, machine, raw data</a>' in shown
    assert details.index('id="measured-2"') < details.index("0.5, n=1") < details.index("Next: more.")


def test_scaling_table(built):
    """A picture for each theme, then medians with base case and limits; intervals and source are one click away."""
    page = built.html("scaling")

    assert not built.complaints("docs/scaling.md")
    for text in (
        "2.5 [2.5, 2.5]",
        "1.6 [1.6, 1.6]",
        "80% [80%, 80%]",
        "Base case: 1 node, median 4 s of 10 repeats.",
        "Measured from 1 to 2 nodes, and valid there only.",
        "With batch 64, link 300mbit.",
        "cpu quota 0.5",
    ):
        assert text in page
    shown, details = page.split("<details", 1)
    assert shown.index("<img") < shown.index("<table")
    assert "2.5" in shown
    assert "[2.5, 2.5]" not in shown
    assert "[2.5, 2.5]" in details
    assert "Base case" in shown
    assert page.count('alt="Two nodes are faster than one."') == 2
    assert len(list((built.site / "_images").glob("scaling-*.svg"))) == 2
