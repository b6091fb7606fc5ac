"""Runs the gallery: it fails a build in which an example did not run, and runs examples again that may be stale.

sphinx-gallery runs an example that has no checksum: it is removed when the example has changed, or a file that it uses.
Two examples run at once.

Plots are SVG without a ground, in the site's colours. plots.css turns them for dark themes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from colours import plot_style
from sphinx.errors import ExtensionError
from sphinx_gallery import gen_gallery
from sphinx_gallery.scrapers import matplotlib_scraper

from srunbook._files import write_whole

if TYPE_CHECKING:
    from sphinx.application import Sphinx

SHARED = ("constraints.txt", "docs/_ext/colours.py", "docs/_ext/gallery.py")
"""What every example uses, from the root of the repository."""

ENVIRONMENT = dict(os.environ)
"""The environment in which every example starts: that of the build, after conf.py has set the devices."""


def drivers(root: Path) -> list[Path]:
    """Return the examples that the gallery runs: `plot_*.py` in the folders of the guides."""
    return sorted(root.glob("examples/*/plot_*.py"))


def checksum(app: Sphinx, driver: Path) -> Path:
    """Return the file whose presence tells sphinx-gallery that an example has run."""
    return Path(app.srcdir, "gallery", *driver.parts[-2:]).with_suffix(".py.md5")


def hashes(root: Path, driver: Path) -> dict[str, str]:
    """Return the hashes of an example and what it uses: its guide's files, results it names, rooms that they import."""
    text = driver.read_text(encoding="utf-8")
    files = [path for path in root.glob("bench/results/*.json") if path.name in text]
    guide = [path for path in driver.parent.rglob("*") if not re.match(r"plot_|.*\.recording\.json$", path.name)]
    files += [driver, *guide, *(root / name for name in SHARED)]
    for path in files:  # more are added on the way
        text = path.read_text(encoding="utf-8") if path.suffix == ".py" and path.is_file() else ""
        imports = " ".join(re.findall(r"^ *(?:from|import) (?:srunbook|measurements).*", text, re.MULTILINE))
        for room in [root / "bench/measurements.py", *root.glob("src/srunbook/*")]:
            if room.stem in imports and room not in files:
                files += [room, *room.rglob("*")]
    used = {path for path in files if path.is_file() and path.suffix != ".pyc"}
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in used}


def restore_environment(_conf: dict[str, Any], _name: str) -> None:
    """Take back what an example did to the environment, so that nothing leaks into the next."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)


def style(_conf: dict[str, Any], _name: str) -> None:
    """Set matplotlib's colours and fonts before each example, and again after it."""
    mpl.rcdefaults()
    mpl.use("agg")
    mpl.rcParams.update(plot_style("light"))


def as_svg(block: tuple[Any, ...], block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save an example's figures, and return the reStructuredText that shows them.

    The gallery's own directive copies pictures to one folder by their name alone, where those of two guides with the
    same name meet; `image` gives each a name of its own.
    """
    options = {"format": "svg", "bbox_inches": "tight", "transparent": True, "metadata": {"Date": None}}
    shown = matplotlib_scraper(block, block_vars, gallery_conf, **options)
    return re.sub(r"^ *:srcset:.*\n", "", shown, flags=re.MULTILINE).replace("image-sg::", "image::")


def forget_outdated(app: Sphinx) -> None:
    """Let each example run again that uses a file which has changed; start afresh when an example is gone."""
    root, gallery = Path(app.srcdir).parent, Path(app.srcdir, "gallery")
    now = {str(driver.relative_to(root)): hashes(root, driver) for driver in drivers(root)}
    stamp = gallery / "used.json"
    before = json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else {}
    if not before or before.keys() - now.keys():
        shutil.rmtree(gallery, ignore_errors=True)
    for name in now:
        if now[name] != before.get(name):
            checksum(app, root / name).unlink(missing_ok=True)
    gallery.mkdir(exist_ok=True)
    write_whole(stamp, json.dumps(now))


def run_gallery(app: Sphinx) -> None:
    """Run the gallery, and check that each example has passed, in this build or in an earlier one."""
    root = Path(app.srcdir).parent
    if all(checksum(app, driver).is_file() for driver in drivers(root)):  # then no processes need to start
        app.config.sphinx_gallery_conf["parallel"] = False
    gen_gallery.generate_gallery_rst(app)
    conf = app.config.sphinx_gallery_conf
    failed = {Path(name).relative_to(root): text for name, text in conf["failing_examples"].items()}
    if failed:  # the session of the docs has a second look, and reports this if they then pass
        lines = [f"{name}: {text.strip().splitlines()[-1]}" for name, text in failed.items()]
        write_whole(Path(app.outdir).with_name("failed-example.txt"), "; ".join(lines))
        raise ExtensionError("\n".join(f"the example {name} failed:\n{text}" for name, text in failed.items()))
    passed = {Path(name).parts[-2:] for name in [*conf["passing_examples"], *conf["stale_examples"]]}
    for driver in drivers(root):
        if driver.parts[-2:] not in passed:
            raise ExtensionError(
                f"the example {driver.relative_to(root)} did not run: its folder needs a GALLERY_HEADER.rst with the "
                "title of the guide, and no setting of sphinx-gallery may leave it out"
            )


def setup(app: Sphinx) -> None:
    """Put the guard around the gallery's own run."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    app.registry.js_files[:] = [file for file in app.registry.js_files if file[0] != "sg-tags.js"]  # nothing has tags
    for listener in list(app.events.listeners["builder-inited"]):
        if listener.handler is gen_gallery.generate_gallery_rst:
            app.disconnect(listener.id)
    app.connect("builder-inited", forget_outdated, priority=400)
    app.connect("builder-inited", run_gallery)
