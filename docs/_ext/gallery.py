"""Runs the gallery: it fails a build in which an example did not run, and starts afresh when it may be stale.

sphinx-gallery runs an example again when the example's own text has changed. When a file that examples may use has
changed, the whole gallery is removed first, so every example runs.

Plots are SVG without a ground, in the site's colours. plots.css turns them for dark themes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from colours import PLOT, plot_style
from cycler import cycler
from sphinx.errors import ExtensionError
from sphinx_gallery import gen_gallery
from sphinx_gallery.scrapers import matplotlib_scraper

from srunbook._files import write_whole

if TYPE_CHECKING:
    from sphinx.application import Sphinx

USED = (
    "examples",
    "bench/results",
    "src/srunbook/slurm",
    "src/srunbook/simulate",
    "src/srunbook/measurements",
    "constraints.txt",
    "docs/_ext/colours.py",
    "docs/_ext/gallery.py",
)
"""What an example may use, from the root of the repository."""

ENVIRONMENT = dict(os.environ)
"""The environment in which every example starts: that of the build, after conf.py has set the devices."""


def drivers(root: Path) -> list[Path]:
    """Return the examples that the gallery runs: `plot_*.py` in the folders of the guides."""
    return sorted(root.glob("examples/*/plot_*.py"))


def hash_of_used(root: Path) -> str:
    """Return the hash of all that examples may use, and of the names of the examples."""
    digest = hashlib.sha256()
    for path in sorted(path for name in USED for path in [root / name, *(root / name).rglob("*")] if path.is_file()):
        if path.suffix != ".pyc" and not path.name.endswith(".recording.json"):
            digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
            digest.update(b"" if path.name.startswith("plot_") else hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def restore_environment(_conf: dict[str, Any], _name: str) -> None:
    """Take back what an example did to the environment, so that nothing leaks into the next."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)


def style(_conf: dict[str, Any], _name: str) -> None:
    """Set matplotlib's colours and fonts before each example, and again after it."""
    mpl.rcdefaults()
    mpl.use("agg")
    settings: dict[Any, Any] = {
        "axes.prop_cycle": cycler(color=PLOT["light"][1:]),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "legend.frameon": False,
    }
    mpl.rcParams.update(settings | plot_style("light"))


def as_svg(block: tuple[Any, ...], block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save an example's figures, and return the reStructuredText that shows them.

    The gallery's own directive copies pictures to one folder by their name alone, where those of two guides with the
    same name meet; `image` gives each a name of its own.
    """
    options = {"format": "svg", "bbox_inches": "tight", "transparent": True, "metadata": {"Date": None}}
    shown = matplotlib_scraper(block, block_vars, gallery_conf, **options)
    return re.sub(r"^ *:srcset:.*\n", "", shown, flags=re.MULTILINE).replace("image-sg::", "image::")


def remove_outdated(app: Sphinx) -> None:
    """Remove the gallery if a file that examples may use has changed since it was begun."""
    gallery = Path(app.srcdir, "gallery")
    stamp, now = gallery / "used.sha256", hash_of_used(Path(app.srcdir).parent)
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != now:
        shutil.rmtree(gallery, ignore_errors=True)
        gallery.mkdir(exist_ok=True)
        stamp.write_text(now, encoding="utf-8")


def run_gallery(app: Sphinx) -> None:
    """Run the gallery, and check that each example has passed, in this build or in an earlier one.

    Raises:
        ExtensionError: An example did not run.
    """
    root = Path(app.srcdir).parent
    try:
        gen_gallery.generate_gallery_rst(app)
    except Exception as error:
        driver = Path(sys.argv[0])
        if driver in drivers(root):  # the session of the docs has a second look, and reports this if it then passes
            first = next(iter(str(error).strip().splitlines()), "")
            failed = Path(app.outdir).with_name("failed-example.txt")
            write_whole(failed, f"{driver.relative_to(root)}: {type(error).__name__}: {first}")
        raise
    conf = app.config.sphinx_gallery_conf
    passed = {Path(name).parts[-2:] for name in [*conf["passing_examples"], *conf["stale_examples"]]}
    for driver in drivers(root):
        if driver.parts[-2:] not in passed:
            raise ExtensionError(
                f"the example {driver.relative_to(root)} did not run: its folder needs a GALLERY_HEADER.rst with the "
                "title of the guide, and no setting of sphinx-gallery may leave it out"
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Put the guard around the gallery's own run."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    for listener in list(app.events.listeners["builder-inited"]):
        if listener.handler is gen_gallery.generate_gallery_rst:
            app.disconnect(listener.id)
    app.connect("builder-inited", remove_outdated, priority=400)
    app.connect("builder-inited", run_gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
