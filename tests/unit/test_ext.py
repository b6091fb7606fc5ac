"""The small functions behind the directives of the site."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import real_files
import recorded
import recording_files
from docutils import nodes

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_ext"


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours such as #0b5a78, as WCAG defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXTENSIONS.glob("*.py")))
def test_doctests(name):
    """The examples in an extension's docstrings are right."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_some_doctests_exist():
    """The doctests above are not an empty set."""
    attempted = [doctest.testmod(importlib.import_module(name)).attempted for name in ("measured", "real_files")]

    assert min(attempted) > 1


@pytest.mark.parametrize(("theme", "ground"), [("LIGHT", "#ffffff"), ("DARK", "#131416")])
def test_contrast(theme, ground):
    """Text in the site's own colours has a contrast of at least 4.5 on the grounds where it stands."""
    colours = getattr(importlib.import_module("colours"), theme)
    text = [colours[f"color-{name}"] for name in ("brand-primary", "brand-visited", "ran", "not-ran")]

    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert min(contrast(colour, ground) for colour in text) >= 4.5
    for name in ("ran", "not-ran"):
        assert contrast(colours[f"color-{name}"], colours["color-recorded-background"]) >= 4.5


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#131416")])
def test_contrast_of_plots(theme, ground):
    """Every colour of a plot has a contrast of at least 4.5 on its ground."""
    assert min(contrast(colour, ground) for colour in importlib.import_module("colours").PLOT[theme]) >= 4.5


def test_what_a_driver_uses(tmp_path):
    """A driver uses the files and measurements it names or imports, those that these name, and nothing else."""
    folder = tmp_path / "examples" / "guide"
    texts = {
        "plot_a.py": 'run("worker.py")\nrun("../failures/slug/broken.py")\nread(RESULTS / "steps.json")\n',
        "plot_b.py": 'run("other.py")\n',
        "worker.py": "from common import x\n",
        "common.py": "open('data.json')\n",
        "data.json": "{}",
        "other.py": "pass\n",
        "worker.recording.json": "{}",
        "my_worker.py": "pass\n",
    }
    for name, text in texts.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    broken = tmp_path / "examples" / "failures" / "slug" / "broken.py"
    broken.parent.mkdir(parents=True)
    broken.write_text("pass\n")
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    for name in ("steps.json", "others.json"):
        (results / name).write_text("{}")

    uses = importlib.import_module("gallery_guard").uses(folder / "plot_a.py")

    assert {path.name for path in uses} == {"worker.py", "common.py", "data.json", "broken.py", "steps.json"}


def test_section():
    """A section is what stands between its two markers, dedented."""
    section = importlib.import_module("code_file").section
    text = "a\n    # [loop]\n    b\n      c\n    # [/loop]\nd\n"

    assert section(text, "loop") == "b\n  c\n"
    with pytest.raises(ValueError, match=r"'# \[lop\]' occurs 0 times, not once; sections: loop"):
        section(text, "lop")


def test_stamp_has_the_time_of_the_job():
    """The line under a script says how long the job took, and not its last step."""
    rows = [{"JobID": "7", "Elapsed": "00:01:17"}, {"JobID": "7.0", "Elapsed": "00:00:05"}]
    run = {"command": "sbatch a.sbatch", "where": "slurm", "date": "2026-11-20", "source_sha256": "0" * 64}
    recording = recording_files.Recording(**run, output=(), versions={"slurm": "22.05.8"}, accounting=rows)

    assert recorded.stamp(recording) == "Ran on Slurm 22.05.8 in 77 s, 2026-11-20"


@pytest.mark.parametrize(
    ("html", "page", "may"),
    [
        ("<div id='sg-tag-list' class='sphx-glr-tag-list'></div>\n<div class=\"sphx-glr-thumbnails\">", "gallery/a", 1),
        ('<div class="sphx-glr-thumbnails"><pre>srun a</pre>', "gallery/a", 0),
        ('<div class="sphx-glr-thumbnails">', "guides/a", 0),
    ],
    ids=["a list of examples", "code that begins like one", "another page"],
)
def test_html_of_the_gallery(html, page, may):
    """In the gallery's pages stands its own HTML, and nothing that only begins like it."""
    assert real_files.allowed(None, page, nodes.raw(html, html, format="html")) == bool(may)
