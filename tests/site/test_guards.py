from __future__ import annotations

PASSING = '"""\nA title\n=======\n\nProse.\n"""\n\nprint("it ran")\n'


def test_clean_site_builds(tiny_site):
    """A site with a real file, a console line and a passing example builds."""
    tiny_site.write("examples/guide/plot_a.py", PASSING)
    tiny_site.write("slurm/job.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n")
    tiny_site.page("```{code-file} slurm/job.sbatch\n```\n\n```console\n$ sbatch job.sbatch\n```\n")

    build = tiny_site.build()

    assert build.returncode == 0, build.output
    page = (build.site / "index.html").read_text()
    assert "--nodes=2" in page
    assert "Not yet run on Slurm." in page
    assert "it ran" in (build.site / "gallery" / "guide" / "plot_a.html").read_text()


def test_inline_code_block(tiny_site):
    """A code block typed into a page fails the build and is named with page, line and first line."""
    tiny_site.page("```python\nimport jax\nprint(jax.devices())\n```")

    build = tiny_site.build()

    assert build.returncode != 0
    assert "docs/index.md:3: WARNING: code block that is no real file, beginning 'import jax'" in build.output
    assert "code-file" in build.output


def test_example_that_exits(tiny_site):
    """An example that calls sys.exit(0) fails the build, although Sphinx alone would end with status 0."""
    tiny_site.write("examples/guide/plot_a.py", PASSING + "import sys\n\nsys.exit(0)\n")

    build = tiny_site.build()

    assert build.returncode != 0
    assert "plot_a.py called sys.exit(0)" in build.output
