"""Every guard of the build, seen to fail."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSING = '"""\nA title\n=======\n\nProse.\n"""\n\nprint("it ran")\n'
JOB = "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n"


def recording(source: str, **changes: object) -> str:
    """Return the recording of a file with the given text."""
    fields = {
        "command": "sbatch job.sbatch",
        "where": "slurm",
        "date": "2026-11-20",
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "output": ["node1 says <hello>", "node2 says <hello>"],
        "versions": {"slurm": "22.05.8", "jax": "0.10.2"},
    }
    return json.dumps(fields | changes)


@pytest.fixture(scope="module")
def faulty(shared_site):
    """Build a site once that has a fault of every kind which leaves the build running."""
    site, pages = shared_site, {}
    site.write("slurm/job.sbatch", JOB)
    site.write("slurm/job.recording.json", recording(JOB))
    site.write("examples/guide/a.py", "def f():\n    pass\n")
    pages |= {name: body for name, (body, _) in BLOCKS.items()}
    pages["line"] = "One.\n\nTwo.\n\n```python\nimport jax\nprint(jax)\n```"
    pages["commands"] = "\n\n".join(f"```console\n$ {command}\n```" for command in COMMANDS)
    pages |= {name: f"```{{code-file}} {body}```" for name, (body, _) in DIRECTIVES.items()}
    pages |= {name: f"```{{recorded}} slurm/job.sbatch\n{option}\n```" for name, (option, _) in MATCHES.items()}
    site.write("examples/guide/changed.py", "x = 2\ndef f():\n    pass\ny = 3\n")
    for name in ("one", "same"):
        site.write(f"examples/guide/{name}.py", "def f():\n    pass\n")
    pages |= {name: f"```{{code-diff}} {body}```" for name, (body, _) in DIFFS.items()}
    for place, example in EXAMPLES.items():
        site.write(place, example)
    for name, where, text in RECORDED_WRONGLY:
        site.write(name, text)
        site.write(f"{name.partition('.')[0]}.recording.json", recording(JOB, where=where))
    pages["wrong-recordings"] = "\n\n".join(f"```{{recorded}} {name}\n```" for name, _, _ in RECORDED_WRONGLY)
    entries = {f"troubleshooting/{name}": ENTRY.replace(old, new, 1) for name, (old, new, _) in ENTRIES.items()}
    pages["listed"] = "```{failure-index} begin\n```"
    for name, text in entries.items():
        site.write(f"docs/{name}.md", text)
    for name, (svg, _) in DRAWINGS.items():
        site.write(f"docs/_static/drawings/{name}.svg", f"{HEAD}{svg}</svg>")
        pages[f"drawing-{name}"] = f"```{{drawing}} {name}\n```"
    site.pages(pages, also=entries)
    return site.build()


def test_site_with_faults_fails(faulty):
    """A site whose pages have faults is not built with status 0."""
    assert faulty.returncode != 0


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
    for name, (command, _) in COMMANDS_RECORDED.items():
        site.write(f"slurm/{name}/job.sbatch", JOB)
        site.write(f"slurm/{name}/job.recording.json", recording(JOB, command=command))
        option = ":match: node2|<x>\n" if name == "plain" else ""
        shown = f"```{{recorded}} slurm/{name}/job.sbatch\n{option}```"
        pages[name] = f"```{{code-file}} slurm/{name}/job.sbatch\n```\n\n{shown}"
    site.write("docs/troubleshooting/hello.md", ENTRY)
    site.write("docs/troubleshooting/elsewhere.md", not_reproduced("node2 is gone"))
    site.write("docs/_static/drawings/whole.svg", f"{HEAD}{DRAWINGS['whole'][0]}</svg>")
    lists = "```{failure-index} meet\n```\n\n```{failure-index} queue\n```"
    pages["lists"] = f"{lists}\n\n```{{drawing}} whole\n```"
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


# Code blocks


BLOCKS = {
    "python": ("```python\nimport jax\nprint(jax.devices())\n```", "import jax"),
    "bare": ("```\nimport jax\n```", "import jax"),
    "two-commands": ("```console\n$ cd here\n$ ls\n```", "$ cd here"),
    "no-prompt": ("```console\nls\n```", "ls"),
    "indented": ("    import jax\n    jax.devices()", "import jax"),
    "code-block": ("```{code-block} bash\nsrun true\n```", "srun true"),
    "literalinclude": ("```{literalinclude} ../slurm/job.sbatch\n```", "#!/bin/bash"),
    "doctest": ("```{eval-rst}\n>>> 1 + 1\n2\n```", ">>> 1 + 1"),
    "rst": ("```{eval-rst}\nText::\n\n    srun true\n```", "srun true"),
    "html": ("<pre>srun true</pre>", "<pre>srun true</pre>"),
    "styled": ('<code style="white-space:pre">srun a<br>srun b</code>', '<code style="white-space:pre">'),
    "hard-breaks": ("`srun a`\\\n`srun b`", "<br />"),
    "raw": ("```{raw} html\n<div>srun a</div>\n```", "<div>srun a</div>"),
    "line-block": ("```{eval-rst}\n| ``srun a``\n| ``srun b``\n```", "srun a"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block_that_is_no_file(faulty, name):
    """A code block typed into a page fails the build, however it is typed; its first line and the remedy are named."""
    complaint = f"WARNING: {name}: code block that is no real file, beginning {BLOCKS[name][1]!r}: put the code into"

    assert faulty.complaints(complaint)


def test_block_is_named_with_its_line(faulty):
    """The complaint about a code block names the line of the page where it begins."""
    assert faulty.complaints("docs/line.md:7: WARNING: line: code block that is no real file")


INLINE = "# %%\n# .. code-block:: python\n#\n#    import invented\n\nprint(2)\n"
DRESSED = "# %%\n# .. rst-class:: sphx-glr-script-out\n#\n# .. code-block:: none\n#\n#    invented\n\nprint(2)\n"
IN_HEADER = ".. container:: sphx-glr-script-out\n\n   .. code-block:: none\n\n      invented in the header\n"
EXAMPLES = {
    "examples/guide/plot_a.py": PASSING + INLINE,
    "examples/guide/plot_b.py": PASSING + DRESSED,
    "examples/guide/GALLERY_HEADER.rst": f"Guide\n-----\n\n{IN_HEADER}",
}


def test_block_in_the_prose_of_an_example(faulty):
    """Code in the prose of an example fails the build, even if it dresses as captured output."""
    assert "plot_a.rst" in faulty.complaints("gallery/guide/plot_a: code block that is no real file")[0]
    assert faulty.complaints("gallery/guide/plot_a: code block that is no real file, beginning 'import invented'")
    assert faulty.complaints("gallery/guide/plot_b: code block that is no real file, beginning 'invented'")


def test_output_in_the_header_of_a_gallery(faulty):
    """A gallery's own text holds no code, even if it dresses as what an example printed."""
    assert faulty.complaints("gallery/guide/index: code block that is no real file, beginning 'invented in the header'")


COMMANDS = {
    "srunbook simulate --nodez 2 -- true": "No such option '--nodez'",
    "sudo srunbook cluster upp": "No such command 'upp'",
    "srunbook simulate --nodes": "Option '--nodes' requires an argument",
    "srunbook simulate -- python examples/guide/gone.py": "there is no examples/guide/gone.py",
    "python 'x": "No closing quotation",
    "A=1 srunbook simulate --nodes 2 --gpus-per-node 4 -- python slurm/job.sbatch --nodez": None,
    "srunbook --version": None,
    "sudo srunbook cluster exec -- srun -N4 hostname": None,
    "sbatch job.sbatch": None,
}


def test_wrong_commands(faulty):
    """A command with an option that srunbook has not, or a file that is not there, fails the build."""
    complaints = faulty.complaints("WARNING: commands: command ")
    wanted = {command: complaint for command, complaint in COMMANDS.items() if complaint}

    assert len(complaints) == len(wanted), complaints
    for command, complaint in wanted.items():
        assert any(command in line.replace('"', "'") and complaint in line for line in complaints), command


DIRECTIVES = {
    "absent": ("slurm/absent.sbatch\n", "no file 'slurm/absent.sbatch'; slurm has job.recording.json, job.sbatch"),
    "absolute": ("/etc/passwd\n", "'/etc/passwd' is no path from the root of the repository"),
    "parent": ("slurm/../conf.py\n", "is no path from the root of the repository"),
    "section": ("slurm/job.sbatch\n:section: x\n", "'# [x]' occurs 0 times, not once; sections: none"),
    "emphasize-text": ("slurm/job.sbatch\n:emphasize-text: EDIT\n", "no line contains the text to emphasize, 'EDIT'"),
    "emphasize-lines": ("slurm/job.sbatch\n:emphasize-lines: 9\n", "line 9 cannot be emphasized: there are 3"),
    "pyobject": ("examples/guide/a.py\n:pyobject: g\n", "no object 'g'; the file has f"),
}


@pytest.mark.parametrize("name", DIRECTIVES)
def test_wrong_code_file(faulty, name):
    """A file, section or object that is not there fails the build, and what is there is named."""
    assert any(f"docs/{name}.md:3" in line for line in faulty.complaints(DIRECTIVES[name][1]))


CHANGED = "examples/guide/changed.py\n:from: examples/guide/one.py\n"
DIFFS = {
    "diff-without-from": ("examples/guide/a.py\n", "name the earlier file"),
    "diff-from-absent": ("examples/guide/a.py\n:from: examples/guide/z.py\n", "no file 'examples/guide/z.py'"),
    "diff-of-absent": ("examples/guide/z.py\n:from: examples/guide/a.py\n", "no file 'examples/guide/z.py'"),
    "diff-of-equals": ("examples/guide/same.py\n:from: examples/guide/one.py\n", "same.py is one.py, byte for byte"),
    "diff-part-absent": (f"{CHANGED}\nx = 4\n", "no changed line contains 'x = 4'"),
    "diff-part-unchanged": (f"{CHANGED}\ndef f\n", "no changed line contains 'def f'"),
    "diff-part-backwards": (f"{CHANGED}\ny = 3 ... x = 2\n", "with 'x = 2' comes before the first with 'y = 3'"),
    "diff-part-missing": (f"{CHANGED}\nx = 2\n", "show this changed line 0 times, not once: + y = 3"),
    "diff-part-twice": (f"{CHANGED}\nx = 2 ... y = 3\ny = 3\n", "show this changed line 2 times, not once: + y = 3"),
    "diff-part-and-whole": (
        f"{CHANGED}\nx = 2 ... y = 3\n```\n\n```{{code-diff}} {CHANGED}",
        "show this changed line 2 times, not once: + x = 2",
    ),
}


@pytest.mark.parametrize("name", DIFFS)
def test_wrong_code_diff(faulty, name):
    """A difference without an earlier file, of equal files, or in parts that leave lines out fails the build."""
    assert any(f"docs/{name}.md:3" in line for line in faulty.complaints(DIFFS[name][1]))


# The gallery


def test_example_that_exits(tiny_site):
    """An example that calls sys.exit(0) fails the build, although Sphinx alone would end with status 0."""
    tiny_site.write("examples/guide/plot_a.py", PASSING + "import sys\n\nsys.exit(0)\n")

    build = tiny_site.build()

    assert build.returncode != 0
    assert "plot_a.py called sys.exit(0)" in build.output
    assert not (build.site / "index.html").exists()


def test_example_that_ends_the_process(tiny_site):
    """An example that ends the process leaves status 0 and no report; its absence is what `nox -s docs` looks for."""
    tiny_site.write("examples/guide/plot_a.py", PASSING + "import os\n\nos._exit(0)\n")

    build = tiny_site.build()

    assert build.returncode == 0
    assert not build.site.with_name("site-included.json").exists()
    assert 'SITE.with_name("site-included.json")' in (ROOT / "noxfile.py").read_text()


def test_example_that_fails(tiny_site):
    """An example that raises fails the build."""
    tiny_site.write("examples/guide/plot_a.py", PASSING + 'raise RuntimeError("rank 2 is gone")\n')

    build = tiny_site.build()

    assert build.returncode != 0
    assert "rank 2 is gone" in build.output


def test_example_in_a_folder_without_header(tiny_site):
    """An example that the gallery does not collect fails the build, with what its folder lacks."""
    tiny_site.write("examples/other/plot_a.py", PASSING)

    build = tiny_site.build()

    assert build.returncode != 0
    assert "examples/other/plot_a.py did not run: its folder needs a GALLERY_HEADER.rst" in build.output


@pytest.mark.parametrize(
    "option",
    ["plot_gallery=0", pytest.param("sphinx_gallery_conf.filename_pattern=nothing", marks=pytest.mark.full)],
)
def test_skipped_example(tiny_site, option):
    """An example that the settings skip fails the build."""
    tiny_site.write("examples/guide/plot_a.py", PASSING)

    build = tiny_site.build("-D", option)

    assert build.returncode != 0
    assert "examples/guide/plot_a.py did not run" in build.output


def test_example_without_html(tiny_site):
    """An example whose page is not written fails the build."""
    tiny_site.write("examples/guide/plot_a.py", PASSING)
    conf = tiny_site.root / "conf.py"
    conf.write_text(conf.read_text() + 'exclude_patterns += ["gallery/guide"]\n')

    build = tiny_site.build()

    assert build.returncode != 0
    assert "plot_a.py ran, but" in build.output


def test_environment_does_not_leak(clean):
    """What one example sets in the environment, the next does not see: it would have failed."""
    assert "it ran" in clean.html("gallery/guide/plot_b")


def test_change_runs_its_drivers_again(tiny_site):
    """A change in a program runs again the examples that use it, directly or not, and no other."""
    log = tiny_site.root / "log"
    note = f'open({str(log)!r}, "a").write({{!r}})\n'
    tiny_site.write("examples/guide/worker.py", "import common\n")
    tiny_site.write("examples/guide/common.py", "x = 1\n")
    tiny_site.write("examples/guide/plot_a.py", PASSING + note.format("a") + 'print("worker.py")\n')
    tiny_site.write("examples/guide/plot_b.py", PASSING + note.format("b"))

    def runs() -> str:
        """Build, and return which examples ran."""
        log.write_text("")
        build = tiny_site.build()
        assert build.returncode == 0, build.output
        return log.read_text()

    assert runs() == "ab"
    tiny_site.page("Other prose.")
    tiny_site.write("examples/guide/common.py", "x = 2\n")
    assert runs() == "a"
    tiny_site.write("examples/guide/plot_b.py", PASSING + note.format("b") + "# changed\n")
    assert runs() == "b"
    tiny_site.write("src/srunbook/simulate/a.py", "x = 1\n")
    assert runs() == "ab"


# Recordings


COMMANDS_RECORDED = {
    "plain": ("sbatch job.sbatch", "Ran"),
    "arguments": ("sbatch job.sbatch --steps=3 --every=1", "Ran with --steps=3 --every=1"),
    "squeue": ('squeue --me --format="%i %T"', "Ran"),
}


def test_recorded_output(clean):
    """A recording of the same bytes is shown with its stamp; of the command it says only a script's arguments."""
    for name, (_, ran) in COMMANDS_RECORDED.items():
        assert clean.html(name).count(f">{ran} on Slurm 22.05.8, 2026-11-20, JAX 0.10.2.") == 2
    page = clean.html("plain")
    assert "node2 says &lt;hello&gt;" in page
    assert "node1 says" not in page
    assert '<span title="the lines that match node2|&lt;x&gt;">Shown: 1 of 2 lines.</span>' in page


def test_recording_that_comes_later(tiny_site):
    """A page that waited for a recording shows it at the next build; one that failed for a warning leaves no report."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.page("```{recorded} slurm/job.sbatch\n```")
    before = tiny_site.build()
    tiny_site.write("slurm/job.recording.json", recording(JOB))

    after = tiny_site.build()

    assert "not yet run on Slurm, so there is no output to show" not in (after.site / "index.html").read_text()
    assert "node1 says" in (after.site / "index.html").read_text()
    assert before.returncode == after.returncode == 0
    report = after.site.with_name("site-included.json")
    assert report.exists()
    tiny_site.page("```python\nimport jax\n```")
    assert tiny_site.build().returncode != 0
    assert not report.exists()


RECORDED_WRONGLY = (
    ("slurm/other/changed.sbatch", "slurm", JOB + "# changed\n"),
    ("slurm/other/elsewhere.sbatch", "process", JOB),
    ("examples/guide/b.py", "slurm", JOB),
)
"""Files with recordings of `JOB`, and where these say that they ran."""


def test_recording_of_other_bytes(faulty):
    """A recording of another version of the script fails the build."""
    assert faulty.complaints("slurm/other/changed.recording.json was recorded from another version of the file")


def test_recording_of_another_place(faulty):
    """A recording that says Slurm beside a program, or anything else beside a job script, fails the build."""
    rule = "a job script runs on slurm, and nothing else does"

    assert faulty.complaints(f"slurm/other/elsewhere.recording.json says that it ran on process: {rule}")
    assert faulty.complaints(f"examples/guide/b.recording.json says that it ran on slurm: {rule}")


MATCHES = {
    "no-match": (":match: node9", "no recorded line matches 'node9'"),
    "no-pattern": (":match: (", "'(' is no regular expression"),
}


@pytest.mark.parametrize("name", MATCHES)
def test_wrong_match(faulty, name):
    """A pattern that matches nothing fails the build."""
    assert any(f"docs/{name}.md:3" in line for line in faulty.complaints(MATCHES[name][1]))


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
    "order": ("## The fix\n\n## The cause", "## The cause\n\n## The fix", "entry whose first sections are not"),
    "field": ("stage: meet\n", "", "field 'stage' is missing"),
    "stage": ("stage: meet", "stage: begin", "field 'stage' should be 'submit', 'queue',"),
    "symptom": ("symptom: hangs", "symptom: odd", "field 'symptom' should be 'refused', 'hangs',"),
    "framework": ("[Slurm]", "[Torch]", "should be 'Slurm', 'PyTorch',"),
    "unknown": ("stage: meet", "stage: meet\nwhere: rank 0", "unknown field 'where'; known are explains, fix,"),
    "yaml": ("stage: meet", "stage: meet: hangs", "front matter that is not YAML: mapping values are not allowed"),
    "none": ("---\nmessages", "messages", "no front matter: an entry begins with its fields"),
    "empty": ('["* says <hello>"]', "[]", "give `messages`, the literal forms of the message, or"),
    "both": ("stage: meet", "stage: meet\nseen: A node speaks", "what the reader sees; not both"),
    "everything": ("* says <hello>", "* # <hello>", "has 5 letters of its own and would match lines of any program"),
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


def not_reproduced(message: str) -> str:
    """Return an entry with a message from elsewhere."""
    text = ENTRY.replace("```{recorded} slurm/job.sbatch\n```\n", "")
    return text.replace("* says <hello>", message).replace("stage", "source: the documentation\nstage")


def test_stage_that_is_none(faulty):
    """A list of entries of a stage that does not exist fails the build."""
    assert any("'begin' is no stage; there are submit, queue" in found for found in faulty.complaints("docs/listed.md"))


def test_entries_become_pages_and_a_list(clean):
    """The message is an entry's title and description, its fix comes first, and the list of its stage leads to it."""
    html, page = clean.html("lists"), clean.html("troubleshooting/hello")
    for text in ('href="troubleshooting/hello.html"', "… says &lt;hello&gt;", "node2 is gone", "No entries yet."):
        assert text in re.sub(r"</?span[^>]*>", "", html)  # which the words of a literal have around them
    assert re.search(r'<li class="symptom-hangs framework-slurm">', html)
    assert 'aria-labelledby="whole-title whole-desc"' in html
    described = "… says &lt;hello&gt;. Tell node1 to be quiet."
    assert f'<meta content="{described}" name="description"' in page
    assert f'<meta property="og:description" content="{described}"' in page
    assert "<title>… says &lt;hello&gt; - srunbook</title>" in page
    assert page.index("<strong>Fix: </strong>") < page.index(">The fix<") < page.index(">The cause<")
    assert "Not reproduced here. Text from the documentation." in clean.html("troubleshooting/elsewhere")


# Drawings


HEAD = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" role="img" aria-labelledby="title desc">'
DRAWINGS = {
    "title": ("<title>x</title>", 'has no <title id="title">'),
    "desc": ('<title id="title">x</title>', 'has no <desc id="desc">'),
    "colour": (
        '<title id="title">x</title><desc id="desc">y</desc><path fill="#ff0000"/>',
        "uses the colour #ff0000",
    ),
    "whole": ('<title id="title">x</title><desc id="desc">y</desc>', None),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing(faulty, name):
    """A drawing tells what it shows and takes its colours from the theme, or the build fails."""
    complaint = DRAWINGS[name][1]

    found = faulty.complaints(f"docs/drawing-{name}.md")

    assert bool(found) == (complaint is not None), found
    assert complaint is None or complaint in found[0]
