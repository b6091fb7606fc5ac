"""Every guard of the build, seen to fail."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import paste_box
import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSING = '"""\nA title\n=======\n\nProse.\n"""\n\nprint("it ran")\n'
JOB = "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n"
NO_FILE = "code block that is no real file, beginning "
CHANGED = "```{code-diff} examples/guide/changed.py\n:from: examples/guide/one.py\n"
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" role="img" aria-labelledby="{0}-title {0}-desc">
<title id="{0}-title">x</title><desc id="{0}-desc">y</desc>{1}</svg>
"""

FILES = {
    "slurm/job.sbatch": JOB,
    "examples/guide/changed.py": "x = 2\ndef f():\n    pass\ny = 3\n",
    "examples/guide/one.py": "def f():\n    pass\n",
    "examples/guide/same.py": "def f():\n    pass\n",
    "slurm/changed.sbatch": JOB + "# changed\n",
    "docs/_static/drawings/colour.svg": SVG.format("colour", '<path fill="#ff0000"/>'),
}
FAULTS = {
    "python": ("```python\nimport jax\nprint(jax.devices())\n```", f"{NO_FILE}'import jax': put the code into"),
    "line": ("One.\n\nTwo.\n\n```python\nimport jax\nx\n```", f"docs/line.md:7: WARNING: line: {NO_FILE}"),
    "two-commands": ("```console\n$ cd here\n$ ls\n```", f"{NO_FILE}'$ cd here'"),
    "literalinclude": ("```{literalinclude} ../slurm/job.sbatch\n```", f"{NO_FILE}'#!/bin/bash'"),
    "doctest": ("```{eval-rst}\n>>> 1 + 1\n2\n```", f"{NO_FILE}'>>> 1 + 1'"),
    "html": ("<pre>srun true</pre>", f"{NO_FILE}'<pre>srun true</pre>'"),
    "option": ("```console\n$ srunbook simulate --nodez 2 -- true\n```", "No such option '--nodez'"),
    "absent": ("```{code-file} slurm/absent.sbatch\n```", "no file 'slurm/absent.sbatch'; slurm has changed"),
    "no-edit": ("```{code-file} slurm/job.sbatch\n:emphasize-text: EDIT\n```", "no line contains the text"),
    "diff-without-from": ("```{code-diff} examples/guide/one.py\n```", "the option 'from' is missing"),
    "diff-of-equals": (CHANGED.replace("changed", "same") + "```", "same.py is one.py, byte for byte"),
    "diff-part-absent": (f"{CHANGED}\nx = 4\n```", "no changed line contains 'x = 4'"),
    "diff-part-missing": (f"{CHANGED}\nx = 2\n```", "show this changed line 0 times, not once: + y = 3"),
    "no-match": ("```{recorded} slurm/job.sbatch\n:match: node9\n```", "no recorded line matches 'node9'"),
    "no-recording": ("```{recorded} examples/guide/one.py\n```", "examples/guide/one.py has no recording: run it"),
    "other-bytes": ("```{recorded} slurm/changed.sbatch\n```", "was recorded from another version of the file"),
    "drawing-colour": ("```{drawing} colour\n```", "uses the colour #ff0000"),
}
"""Pages, and what the build says of each."""


def recording(source: str, **changes: object) -> str:
    """Return the recording of a file with the given text."""
    fields = {
        "command": "sbatch job.sbatch",
        "where": "slurm",
        "date": "2026-11-20",
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "output": ["node1 says <hello>", "node2 says <hello>"],
        "versions": {"slurm": "22.05.8", "jax": "0.10.2"},
        "accounting": [{"JobID": "7", "JobName": "job", "State": "COMPLETED", "Elapsed": "00:01:17"}],
    }
    return json.dumps(fields | changes)


@pytest.fixture(scope="module")
def faulty(shared_site):
    """Build a site once that has a fault of every kind which leaves the build running."""
    for name, text in FILES.items():
        shared_site.write(name, text)
    for name in ("job", "changed"):
        shared_site.write(f"slurm/{name}.recording.json", recording(JOB))
    entries = {f"troubleshooting/{name}": ENTRY.replace(old, new, 1) for name, (old, new, _) in ENTRIES.items()}
    for name, text in entries.items():
        shared_site.write(f"docs/{name}.md", text)
    shared_site.pages({name: body for name, (body, _) in FAULTS.items()}, also=entries)
    return shared_site.build()


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_a_page(faulty, name):
    """A fault fails the build; the complaint names the page, what is wrong, and what to do."""
    assert faulty.returncode != 0
    assert any(f"docs/{name}.md:" in line or f"{name}: " in line for line in faulty.complaints(FAULTS[name][1]))


# A site without faults


RECORDED = {
    "plain": ("sbatch job.sbatch", "Ran"),
    "arguments": ("sbatch job.sbatch --steps=3 --every=1", "Ran with --steps=3 --every=1"),
    "squeue": ('squeue --me --format="%i %T"', "Ran"),
}
"""Commands of recordings, and how the line under each begins."""


@pytest.fixture(scope="module")
def clean(clean_site):
    """Build a site once that has no fault: files, a console line, examples, recordings, entries."""
    site = clean_site
    site.write("examples/guide/plot_a.py", PASSING + 'import os\n\nos.environ["LEAK"] = "1"\n')
    site.write("examples/guide/plot_b.py", PASSING + 'import os\n\nassert "LEAK" not in os.environ\n')
    site.write("slurm/job.sbatch", JOB)
    site.write("slurm/job.recording.json", recording(JOB))
    site.write("slurm/waiting/job.sbatch", JOB)
    pages = {"files": "```{code-file} slurm/waiting/job.sbatch\n```\n\n```console\n$ sbatch job.sbatch\n```\n"}
    pages["lines"] = "```{code-file} examples/guide/changed.py\n:start-at: pass\n:end-at: y =\n```"
    site.write("examples/guide/changed.py", FILES["examples/guide/changed.py"])
    for name, (command, _) in RECORDED.items():
        site.write(f"slurm/{name}/job.sbatch", JOB)
        site.write(f"slurm/{name}/job.recording.json", recording(JOB, command=command))
        option = ":match: node2|<x>\n" if name == "plain" else ""
        shown = f"```{{recorded}} slurm/{name}/job.sbatch\n{option}```"
        pages[name] = f"```{{code-file}} slurm/{name}/job.sbatch\n```\n\n{shown}"
    site.write("docs/troubleshooting/hello.md", ENTRY)
    site.write("docs/troubleshooting/elsewhere.md", not_reproduced("node2 is gone"))
    site.write("docs/_static/drawings/whole.svg", SVG.format("whole", ""))
    pages["lists"] = "```{failure-index} meet\n```\n\n```{drawing} whole\n```"
    site.pages(pages, also=("troubleshooting/hello", "troubleshooting/elsewhere"))
    build = site.build()
    assert build.returncode == 0, build.output
    return build


def test_clean_site_builds(clean):
    """A site with a real file, a console line and a passing example builds."""
    page = re.sub("<[^>]+>", "", clean.html("files"))

    assert "#SBATCH --nodes=2" in page
    assert "Not yet run on Slurm." in page
    assert "it ran" in clean.html("gallery/guide/plot_a")


def test_lines_of_a_file(clean):
    """Of a file cut at two texts, the lines between them are shown with both."""
    block = re.search(r'class="code-file-part">, in part<.*?<pre>(.*?)</pre>', clean.html("lines"), re.S)

    assert re.sub("<[^>]+>", "", block[1]) == "    pass\ny = 3\n"


def test_recorded_output(clean):
    """A recording of the same bytes is shown with its stamp; of the command it says only a script's arguments."""
    for name, (_, ran) in RECORDED.items():
        assert clean.html(name).count(f">{ran} on Slurm 22.05.8 in 77 s, 2026-11-20, JAX 0.10.2.") == 2
    page = clean.html("plain")
    assert "node2 says &lt;hello&gt;" in page
    assert "node1 says" not in page
    assert "Shown: 1 of 2 lines." in page


# The gallery


def test_example_that_ends_the_process(tiny_site):
    """An example that ends the process leaves status 0 and no report; its absence is what `nox -s docs` looks for."""
    tiny_site.write("examples/guide/plot_a.py", PASSING + "import sys\n\nsys.exit(0)\n")

    build = tiny_site.build()

    assert build.returncode == 0
    assert not build.site.with_name("site-included.json").exists()
    assert 'SITE.with_name("site-included.json")' in (ROOT / "noxfile.py").read_text()


def test_example_in_a_folder_without_header(tiny_site):
    """An example that the gallery does not collect fails the build, with what its folder lacks."""
    tiny_site.write("examples/other/plot_a.py", PASSING)

    build = tiny_site.build()

    assert build.returncode != 0
    assert "examples/other/plot_a.py did not run: its folder needs a GALLERY_HEADER.rst" in build.output


def test_skipped_example(tiny_site):
    """An example that the settings skip fails the build."""
    tiny_site.write("examples/guide/plot_a.py", PASSING)

    build = tiny_site.build("-D", "plot_gallery=0")

    assert build.returncode != 0
    assert "examples/guide/plot_a.py did not run" in build.output


def write_example(site, name: str, more: str = "") -> None:
    """Write an example that notes the last letter of its name when it runs."""
    note = f'open({str(site.root / "log")!r}, "a").write({name[-1]!r})\n'
    site.write(f"examples/{name}.py", f"{PASSING}{note}{more}\n")


def test_changes_run_examples_again(tiny_site):
    """A change in an example, its guide, a result or a room it uses runs it again; prose and other guides do not."""
    log = tiny_site.root / "log"
    tiny_site.write("examples/other/GALLERY_HEADER.rst", "Other\n-----\n")
    write_example(tiny_site, "guide/plot_a")
    write_example(tiny_site, "guide/plot_b")
    write_example(tiny_site, "other/plot_c", "name = 'speed.json'")
    write_example(tiny_site, "other/plot_e", "from srunbook import simulate")

    def runs() -> str:
        """Build, and return which examples ran."""
        log.write_text("")
        build = tiny_site.build()
        assert build.returncode == 0, build.output
        return "".join(sorted(log.read_text()))

    tiny_site.write("src/srunbook/simulate/__init__.py", "from srunbook.slurm import x\n")
    tiny_site.write("src/srunbook/slurm.py", "x = 1\n")
    assert runs() == "abce"
    tiny_site.page("Other prose.")
    tiny_site.write("examples/third/worker.py", "x = 1\n")
    tiny_site.write("bench/results/speed.json", "{}")
    write_example(tiny_site, "guide/plot_b", "# changed")
    assert runs() == "bc"
    tiny_site.write("examples/guide/full/worker.py", "x = 1\n")
    tiny_site.write("src/srunbook/slurm.py", "x = 2\n")
    assert runs() == "abe"
    (tiny_site.root / "examples" / "guide" / "plot_a.py").unlink()
    assert runs() == "bce"


def test_failed_example(tiny_site):
    """An example that fails fails the build, which names it and leaves its name for a second look at it alone."""
    write_example(tiny_site, "guide/plot_a", "raise ValueError('no luck')")
    write_example(tiny_site, "guide/plot_b")

    build = tiny_site.build()

    failed = "examples/guide/plot_a.py"
    assert build.returncode != 0
    assert f"the example {failed} failed:" in build.output
    assert build.site.with_name("failed-example.txt").read_text() == f"{failed}: ValueError: no luck"
    assert tiny_site.build().returncode != 0
    assert sorted((tiny_site.root / "log").read_text()) == ["a", "a", "b"]


# Entries about failures

ENTRY = """\
---
messages: ["* says <hello>"]
stage: meet
symptom: hangs
frameworks: [Slurm]
fix: Tell `node1` to be quiet.
---

A node says hello.

## The fix

## The cause

```{recorded} slurm/job.sbatch
```
"""


ENTRIES = {
    "whole": ("", "", None),
    "section": ("## The cause\n", "", "entry whose first sections are not 'The fix', 'The cause'"),
    "stage": ("stage: meet", "stage: begin", "field 'stage': Input should be 'submit', 'queue',"),
    "empty": ('["* says <hello>"]', "[]", "give `messages`, the literal forms of the message, or"),
    "fix": ("be quiet.", "be quiet", "fix: 'Tell `node1` to be quiet' is not one sentence of at most 200"),
    "message": ("* says", "* shouts", "no recording on this page shows its message, '* shouts <hello>'"),
}
"""What is replaced in an entry, by what, and what is then said of it."""


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_about_a_failure(faulty, name):
    """An entry has its fields, its sections, and a recording of its message, or the build fails."""
    complaint = ENTRIES[name][2]

    found = faulty.complaints(f"troubleshooting/{name}")

    assert bool(found) == (complaint is not None), found
    assert complaint is None or complaint in found[0]
    assert (faulty.site / "troubleshooting" / f"{name}.html").is_file()


@pytest.mark.parametrize("pattern", ["a++", r"\s"])
def test_pattern_that_javascript_does_not_share(monkeypatch, pattern):
    """A regular expression that JavaScript reads in another way never reaches the paste box."""
    monkeypatch.setattr(paste_box, "load_patterns", lambda: {"levels": [{"patterns": ["a", pattern]}]})
    with pytest.raises(ValueError, match="have in common"):
        paste_box.data()


def not_reproduced(message: str) -> str:
    """Return an entry with a message from elsewhere."""
    text = ENTRY.replace("```{recorded} slurm/job.sbatch\n```\n", "")
    return text.replace("* says <hello>", message).replace("stage", "source: the documentation\nstage")


def test_entries_become_pages_and_a_list(clean):
    """The message is an entry's title and description, its fix comes first, and the list of its stage leads to it."""
    html, page = clean.html("lists"), clean.html("troubleshooting/hello")
    for text in ('href="troubleshooting/hello.html"', "… says &lt;hello&gt;", "node2 is gone"):
        assert text in re.sub(r"</?span[^>]*>", "", html)  # which the words of a literal have around them
    assert re.search(r'<li class="symptom-hangs framework-slurm">', html)
    assert 'aria-labelledby="whole-title whole-desc"' in html
    described = "… says &lt;hello&gt;. Tell node1 to be quiet."
    assert f'<meta content="{described}" name="description"' in page
    assert f'<meta property="og:description" content="{described}"' in page
    assert "<title>… says &lt;hello&gt; - srunbook</title>" in page
    assert page.index("<strong>Fix: </strong>") < page.index(">The fix<") < page.index(">The cause<")
    assert "Not reproduced here. Text from the documentation." in clean.html("troubleshooting/elsewhere")
