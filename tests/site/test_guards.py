"""Every guard of the build, seen to fail."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PASSING = '"""\nA title\n=======\n\nProse.\n"""\n\nprint("it ran")\n'
JOB = "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n"


def recording(source: str, **changes: object) -> str:
    """The recording of a file with the given text."""
    fields = {
        "command": "sbatch job.sbatch",
        "where": "slurm",
        "date": "2026-11-20",
        "source_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "output": ["node1 says <hello>", "node2 says <hello>"],
        "versions": {"slurm": "22.05.8", "jax": "0.10.2"},
    }
    return json.dumps(fields | changes)


def test_clean_site_builds(tiny_site):
    """A site with a real file, a console line and a passing example builds."""
    tiny_site.write("examples/guide/plot_a.py", PASSING)
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.page("```{code-file} slurm/job.sbatch\n```\n\n```console\n$ sbatch job.sbatch\n```\n")

    build = tiny_site.build()

    assert build.returncode == 0, build.output
    page = (build.site / "index.html").read_text()
    assert "--nodes=2" in page
    assert "Not yet run on Slurm." in page
    assert "it ran" in (build.site / "gallery" / "guide" / "plot_a.html").read_text()


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


def test_blocks_that_are_no_files(tiny_site):
    """A code block typed into a page fails the build, however it is typed; its first line and the remedy are named."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.pages({name: body for name, (body, _) in BLOCKS.items()})

    build = tiny_site.build()

    assert build.returncode != 0
    for name, (_, first) in BLOCKS.items():
        complaint = f"WARNING: {name}: code block that is no real file, beginning {first!r}: put the code into a file"
        assert complaint in build.output


def test_block_is_named_with_its_line(tiny_site):
    """The complaint about a code block names the line of the page where it begins."""
    tiny_site.page("One.\n\nTwo.\n\n```python\nimport jax\nprint(jax)\n```")

    build = tiny_site.build()

    assert "docs/index.md:7: WARNING: index: code block that is no real file" in build.output


def test_block_in_the_prose_of_an_example(tiny_site):
    """Code in the prose of an example fails the build, even if it dresses as captured output."""
    inline = "# %%\n# .. code-block:: python\n#\n#    import invented\n\nprint(2)\n"
    dressed = "# %%\n# .. rst-class:: sphx-glr-script-out\n#\n# .. code-block:: none\n#\n#    invented\n\nprint(2)\n"
    tiny_site.write("examples/guide/plot_a.py", PASSING + inline)
    tiny_site.write("examples/guide/plot_b.py", PASSING + dressed)

    build = tiny_site.build()

    assert build.returncode != 0
    assert "plot_a.rst" in build.output
    assert "beginning 'import invented'" in build.output
    assert "plot_b.rst" in build.output
    assert "beginning 'invented'" in build.output


def test_output_in_the_header_of_a_gallery(tiny_site):
    """A gallery's own text holds no code, even if it dresses as what an example printed."""
    dressed = ".. container:: sphx-glr-script-out\n\n   .. code-block:: none\n\n      invented\n"
    tiny_site.write("examples/guide/GALLERY_HEADER.rst", f"Guide\n-----\n\n{dressed}")
    tiny_site.write("examples/guide/plot_a.py", PASSING)

    build = tiny_site.build()

    assert build.returncode != 0
    assert "gallery/guide/index: code block that is no real file, beginning 'invented'" in build.output


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


def test_wrong_commands(tiny_site):
    """A command with an option that srunbook has not, or a file that is not there, fails the build."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.page("\n\n".join(f"```console\n$ {command}\n```" for command in COMMANDS))

    build = tiny_site.build()

    assert build.returncode != 0
    complaints = [line for line in build.output.splitlines() if "index: command " in line]
    wanted = {command: complaint for command, complaint in COMMANDS.items() if complaint}
    assert len(complaints) == len(wanted), complaints
    for command, complaint in wanted.items():
        assert any(command in line.replace('"', "'") and complaint in line for line in complaints), command


DIRECTIVES = {
    "absent": ("slurm/absent.sbatch\n", "no file 'slurm/absent.sbatch'; slurm has job.sbatch"),
    "absolute": ("/etc/passwd\n", "'/etc/passwd' is no path from the root of the repository"),
    "parent": ("slurm/../conf.py\n", "is no path from the root of the repository"),
    "section": ("slurm/job.sbatch\n:section: x\n", "'# [x]' occurs 0 times, not once; sections: none"),
    "emphasize-text": ("slurm/job.sbatch\n:emphasize-text: EDIT\n", "no line contains the text to emphasize, 'EDIT'"),
    "emphasize-lines": ("slurm/job.sbatch\n:emphasize-lines: 9\n", "line 9 cannot be emphasized: there are 3"),
    "pyobject": ("examples/guide/a.py\n:pyobject: g\n", "no object 'g'; the file has f"),
}


def test_wrong_code_files(tiny_site):
    """A file, section or object that is not there fails the build, and what is there is named."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.write("examples/guide/a.py", "def f():\n    pass\n")
    tiny_site.pages({name: f"```{{code-file}} {body}```" for name, (body, _) in DIRECTIVES.items()})

    build = tiny_site.build()

    assert build.returncode != 0
    for name, (_, complaint) in DIRECTIVES.items():
        assert any(f"docs/{name}.md:3" in at and complaint in at for at in build.output.splitlines()), name


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


@pytest.mark.parametrize("option", ["plot_gallery=0", "sphinx_gallery_conf.filename_pattern=nothing"])
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


def test_environment_does_not_leak(tiny_site):
    """What one example sets in the environment, the next does not see."""
    tiny_site.write("examples/guide/plot_a.py", PASSING + 'import os\n\nos.environ["LEAK"] = "1"\n')
    tiny_site.write("examples/guide/plot_b.py", PASSING + 'import os\n\nassert "LEAK" not in os.environ\n')

    build = tiny_site.build()

    assert build.returncode == 0, build.output


def test_change_runs_its_drivers_again(tiny_site):
    """A change in a program runs again the examples that use it, directly or not, and no other."""
    log = tiny_site.root / "log"
    note = f'open({str(log)!r}, "a").write({{!r}})\n'
    tiny_site.write("examples/guide/worker.py", "import common\n")
    tiny_site.write("examples/guide/common.py", "x = 1\n")
    tiny_site.write("examples/guide/plot_a.py", PASSING + note.format("a") + 'print("worker.py")\n')
    tiny_site.write("examples/guide/plot_b.py", PASSING + note.format("b"))

    def runs() -> str:
        """Builds, and returns which examples ran."""
        log.write_text("")
        build = tiny_site.build()
        assert build.returncode == 0, build.output
        return log.read_text()

    assert runs() == "ab"
    assert runs() == ""
    tiny_site.page("Other prose.")
    assert runs() == ""
    tiny_site.write("examples/guide/common.py", "x = 2\n")
    assert runs() == "a"
    tiny_site.write("examples/guide/plot_b.py", PASSING + note.format("b") + "# changed\n")
    assert runs() == "b"
    tiny_site.write("src/srunbook/simulate/a.py", "x = 1\n")
    assert runs() == "ab"
    (tiny_site.root / "docs/gallery/guide/plot_a.run").write_text("forged")
    assert runs() == "a"


# Recordings


def test_recorded_output(tiny_site):
    """A recording of the same bytes is shown with its stamp."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.write("slurm/job.recording.json", recording(JOB))
    tiny_site.page("```{code-file} slurm/job.sbatch\n```\n\n```{recorded} slurm/job.sbatch\n:match: node2|<x>\n```")

    build = tiny_site.build()

    assert build.returncode == 0, build.output
    page = (build.site / "index.html").read_text()
    assert page.count(">Ran on Slurm 22.05.8, 2026-11-20, JAX 0.10.2.") == 2
    assert "node2 says &lt;hello&gt;" in page
    assert "node1 says" not in page
    assert '<span title="the lines that match node2|&lt;x&gt;">Shown: 1 of 2 lines.</span>' in page


@pytest.mark.parametrize(
    ("command", "ran"),
    [
        ("sbatch job.sbatch", "Ran"),
        ("sbatch job.sbatch --steps=3 --every=1", "Ran with --steps=3 --every=1"),
        ('squeue --me --format="%i %T"', "Ran"),
    ],
)
def test_recorded_arguments(tiny_site, command, ran):
    """A stamp says what else than its own lines a script was given; options of other commands are none of that."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.write("slurm/job.recording.json", recording(JOB, command=command))
    tiny_site.page("```{code-file} slurm/job.sbatch\n```\n\n```{recorded} slurm/job.sbatch\n```")

    build = tiny_site.build()

    assert build.returncode == 0, build.output
    page = (build.site / "index.html").read_text()
    assert page.count(f">{ran} on Slurm 22.05.8, 2026-11-20, JAX 0.10.2.") == 2


def test_recording_that_comes_later(tiny_site):
    """A page that waited for a recording shows it at the next build."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.page("```{recorded} slurm/job.sbatch\n```")
    before = tiny_site.build()
    tiny_site.write("slurm/job.recording.json", recording(JOB))

    after = tiny_site.build()

    assert "not yet run on Slurm, so there is no output to show" not in (after.site / "index.html").read_text()
    assert "node1 says" in (after.site / "index.html").read_text()
    assert before.returncode == after.returncode == 0


def test_recording_of_other_bytes(tiny_site):
    """A recording of another version of the script fails the build."""
    tiny_site.write("slurm/job.sbatch", JOB + "# changed\n")
    tiny_site.write("slurm/job.recording.json", recording(JOB))
    tiny_site.page("```{code-file} slurm/job.sbatch\n```")

    build = tiny_site.build()

    assert build.returncode != 0
    assert "slurm/job.recording.json was recorded from another version of the file" in build.output


def test_recording_of_another_place(tiny_site):
    """A recording that says Slurm beside a program, or anything else beside a job script, fails the build."""
    for name, where in (("slurm/job.sbatch", "process"), ("examples/guide/a.py", "slurm")):
        tiny_site.write(name, JOB)
        tiny_site.write(f"{name.partition('.')[0]}.recording.json", recording(JOB, where=where))
    tiny_site.page("```{code-file} slurm/job.sbatch\n```\n\n```{recorded} examples/guide/a.py\n```")

    build = tiny_site.build()

    assert build.returncode != 0
    assert "slurm/job.recording.json says that it ran on process: a job script runs on slurm" in build.output
    assert "examples/guide/a.recording.json says that it ran on slurm: a job script runs on slurm" in build.output


@pytest.mark.parametrize(
    ("option", "complaint"),
    [(":match: node9", "no recorded line matches 'node9'"), (":match: (", "'(' is no regular expression")],
)
def test_wrong_match(tiny_site, option, complaint):
    """A pattern that matches nothing fails the build."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.write("slurm/job.recording.json", recording(JOB))
    tiny_site.page(f"```{{recorded}} slurm/job.sbatch\n{option}\n```")

    build = tiny_site.build()

    assert build.returncode != 0
    assert complaint in build.output


# Entries about failures

ENTRY = """\
---
message: node1 says <hello>
where: rank 0
frameworks: Slurm
---

# It says hello

## The message

```{recorded} slurm/job.sbatch
```

## Where it is seen

## The cause

## The fix

## The test
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("", "", None),
        ("## The cause\n", "", "entry without the sections 'The cause'"),
        ("where: rank 0\n", "", "entry without `where` in its front matter"),
        ("message: node1", "message: node3", "no recording on this page shows its message, 'node3 says <hello>'"),
    ],
    ids=["whole", "section", "field", "message"],
)
def test_entry_about_a_failure(tiny_site, old, new, complaint):
    """An entry has its fields, its sections, and a recording of its message, or the build fails."""
    tiny_site.write("slurm/job.sbatch", JOB)
    tiny_site.write("slurm/job.recording.json", recording(JOB))
    tiny_site.write("docs/troubleshooting/hello.md", ENTRY.replace(old, new, 1) if old else ENTRY)
    tiny_site.page("```{failure-index}\n```\n\n```{toctree}\ntroubleshooting/hello\n```")

    build = tiny_site.build()

    assert (build.returncode == 0) == (complaint is None), build.output
    assert complaint is None or complaint in build.output
    if complaint is None:
        assert 'href="troubleshooting/hello.html"' in (build.site / "index.html").read_text()
        assert "node1 says &lt;hello&gt;" in (build.site / "index.html").read_text()


@pytest.mark.parametrize(
    ("name", "message", "complaint"),
    [
        ("troubleshooting/hello", "node1 says <hello>", None),
        ("troubleshooting/hello", '"srun a\\nsrun b"', "whose `message` is one line"),
        ("hello", "srun a", "failure-message is for entries in troubleshooting/"),
    ],
    ids=["entry", "lines", "page"],
)
def test_message_that_is_not_reproduced(tiny_site, name, message, complaint):
    """A message from elsewhere stands in an entry and is one line, or the build fails."""
    text = ENTRY.replace("```{recorded} slurm/job.sbatch\n```", "```{failure-message}\n```")
    text = text.replace("message: node1 says <hello>", f"message: {message}\nsource: the documentation")
    tiny_site.write(f"docs/{name}.md", text)
    tiny_site.page(f"```{{toctree}}\n{name}\n```")

    build = tiny_site.build()

    assert (build.returncode == 0) == (complaint is None), build.output
    assert complaint is None or complaint in build.output


def test_build_with_warnings_leaves_no_report(tiny_site):
    """A build that failed for a warning takes away the report of the one before, and is so known as unfinished."""
    first = tiny_site.build()
    report = first.site.with_name("site-included.json")
    written = report.exists()
    tiny_site.page("```python\nimport jax\n```")

    assert tiny_site.build().returncode != 0
    assert written
    assert not report.exists()


# Drawings


@pytest.mark.parametrize(
    ("svg", "complaint"),
    [
        ("<title>x</title>", 'has no <title id="title">'),
        ('<title id="title">x</title>', 'has no <desc id="desc">'),
        ('<title id="title">x</title><desc id="desc">y</desc><path fill="#ff0000"/>', "uses the colour #ff0000"),
        ('<title id="title">x</title><desc id="desc">y</desc>', None),
    ],
    ids=["title", "desc", "colour", "whole"],
)
def test_drawing(tiny_site, svg, complaint):
    """A drawing tells what it shows and takes its colours from the theme, or the build fails."""
    (tiny_site.root / "docs/_static").unlink()
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9" role="img" aria-labelledby="title desc">'
    tiny_site.write("docs/_static/drawings/a.svg", f"{head}{svg}</svg>")
    for name in ("site.css", "site.js"):
        tiny_site.write(f"docs/_static/{name}", "")
    tiny_site.page("```{drawing} a\n```")

    build = tiny_site.build()

    assert (build.returncode == 0) == (complaint is None), build.output
    assert complaint is None or complaint in build.output
    if complaint is None:
        assert 'aria-labelledby="a-title a-desc"' in (build.site / "index.html").read_text()
