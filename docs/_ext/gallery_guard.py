"""Sees to it that every example on the site has run, as it stands now, with what it uses.

sphinx-gallery runs an example again when the example's own text has changed. Here, what an example uses counts
too: the files of its folder that its text names, the library, and the pinned versions. The hash of all of these is
kept beside the example's page; where it no longer agrees, the example runs again, and a page without a current
hash fails the build. Below the hash stand the programs that the example started.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence import watching, with_imports
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx_gallery import gen_gallery

from srunbook._files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

logger = logging.getLogger(__name__)

LIBRARY = (
    "src/srunbook/slurm",
    "src/srunbook/simulate",
    "src/srunbook/measurements",
    "constraints.txt",
    "docs/_ext/colours.py",
    "docs/_ext/gallery_plots.py",
)
"""What every example depends on, from the root of the repository."""

ENVIRONMENT = dict(os.environ)
"""The environment in which every example starts: that of the build, after conf.py has set the devices."""


def drivers(root: Path) -> list[Path]:
    """Return the examples that the gallery runs: `plot_*.py` in the folders of the guides."""
    return sorted(root.glob("examples/*/plot_*.py"))


def uses(driver: Path) -> list[Path]:
    """Return the files that an example uses: those whose name, or path from `examples/`, its text contains.

    A bare name counts for the files of its own folder, `full/train.py` for those of a folder below it. A file it uses
    may itself name others; they count as well. So do the measurements whose name it contains.
    """
    examples = driver.parent.parent
    results = examples.parent / "bench" / "results"
    candidates = {path: (path.name, path.relative_to(examples).as_posix()) for path in files(examples)}
    candidates |= {path: (path.name, f"results/{path.name}") for path in sorted(results.glob("*.json"))}
    found: set[Path] = set()
    waiting = [driver]
    while waiting:
        at = waiting.pop()
        text = at.read_text(encoding="utf-8", errors="ignore")
        for path, (name, full) in candidates.items():
            if path in found or path == driver or path.name.startswith("plot_") or path.name == "GALLERY_HEADER.rst":
                continue
            if path.stem not in text:  # most are not, and a pattern takes longer to find that out
                continue
            below = path.relative_to(at.parent).as_posix() if path.is_relative_to(at.parent) else name
            near = below != name or path.parent in (at.parent, results)
            named = re.search(rf"(?<![\w/.-]){re.escape(below)}\b", text) if near else None
            imported = path.parent == at.parent and re.search(
                rf"^\s*(?:from|import) {re.escape(path.stem)}\b", text, re.M
            )
            if named or imported or full in text:
                found.add(path)
                waiting.append(path)
    return sorted(found)


def files(folder: Path) -> Iterator[Path]:
    """Return the files in a folder that somebody wrote."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith(".recording.json"):
            yield path


def current_hash(root: Path, driver: Path) -> str:
    """Return the hash of an example, of all it uses, of the library, and of the pinned versions."""
    paths = [driver, *uses(driver)]
    for name in LIBRARY:
        place = root / name
        paths += [place] if place.is_file() else files(place)
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def page(root: Path, driver: Path) -> Path:
    """Return the path, without suffix, of what the gallery makes from an example."""
    return root / "docs" / "gallery" / driver.parent.name / driver.stem


def ran_as_it_is(root: Path, driver: Path) -> bool:
    """Tell whether the stamp of an example's last run is of what stands there now."""
    return stamped(page(root, driver).with_suffix(".run"))[:1] == [current_hash(root, driver)]


def stamped(stamp: Path) -> list[str]:
    """Return the lines of a stamp: the hash of what ran, and the programs that it started; none without a stamp."""
    return stamp.read_text(encoding="utf-8").splitlines() if stamp.is_file() else []


def executed(root: Path) -> set[Path]:
    """Return the examples that ran as they are now, the programs that they started, and what these import."""
    found: set[Path] = set()
    for driver in drivers(root):
        if ran_as_it_is(root, driver):
            found |= {driver, *(root / name for name in stamped(page(root, driver).with_suffix(".run"))[1:])}
    return with_imports(found)


def restore_environment(_conf: dict[str, Any], _name: str) -> None:
    """Take back what an example did to the environment, so that nothing leaks into the next."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)


def forget_outdated(app: Sphinx) -> None:
    """Make sphinx-gallery run again what has changed, and removes pages whose example is gone."""
    root = Path(app.srcdir).parent
    wanted = {page(root, driver): driver for driver in drivers(root)}
    for path, driver in wanted.items():
        if not ran_as_it_is(root, driver):
            path.with_suffix(".run").unlink(missing_ok=True)
            path.with_suffix(".py.md5").unlink(missing_ok=True)
            for picture in (path.parent / "images").glob(f"**/sphx_glr_{path.stem}_[0-9t][0-9h][0-9u]*"):
                picture.unlink()  # else a thumbnail is made of one with the same number and another suffix
    for rst in (Path(app.srcdir) / "gallery").glob("*/plot_*.rst"):
        if rst.with_suffix("") not in wanted:
            for left in rst.parent.glob(f"{rst.stem}.*"):
                left.unlink()


def run_gallery(app: Sphinx) -> None:
    """Run the gallery; an example that exits, or that did not run, fails the build.

    Raises:
        ExtensionError: Names the example.
    """
    root = Path(app.srcdir).parent
    arguments, folder = list(sys.argv), Path.cwd()
    hashes = {driver: current_hash(root, driver) for driver in drivers(root)}
    failed = Path(app.outdir).with_name("failed-example.txt")
    try:
        with watching(root / "examples") as started:
            gen_gallery.generate_gallery_rst(app)
    except SystemExit as error:
        raise ExtensionError(
            f"the example {sys.argv[0]} called sys.exit({error.code!r}), which would end the build without a site: "
            "let an example end at its last line, and raise an exception or assert where it must fail"
        ) from None
    except Exception as error:
        driver = Path(sys.argv[0])
        if driver in hashes:  # the session of the docs has a second look, and reports this if it then passes
            first = next(iter(str(error).strip().splitlines()), "")
            write_whole(failed, f"{driver.relative_to(root)}: {type(error).__name__}: {first}")
        raise
    finally:
        sys.argv[:] = arguments
        os.chdir(folder)
        restore_environment({}, "")

    ran = {Path(path) for path in app.config.sphinx_gallery_conf["passing_examples"]}
    for driver, hash_before in hashes.items():
        stamp = page(root, driver).with_suffix(".run")
        if driver in ran:
            names = sorted(path.relative_to(root).as_posix() for path in started.get(driver, ()))
            write_whole(stamp, "\n".join([hash_before, *names]) + "\n")
        if not stamp.is_file():
            raise ExtensionError(f"the example {driver.relative_to(root)} did not run: {reason(app, driver)}")
        if stamped(stamp)[:1] != [hash_before] or not page(root, driver).with_suffix(".rst").is_file():
            raise ExtensionError(
                f"the example {driver.relative_to(root)} has no page of its last run: delete docs/gallery"
            )
    logger.info("gallery: %d examples, %d of them ran now", len(hashes), len(ran & set(hashes)))


def reason(app: Sphinx, driver: Path) -> str:
    """Say why an example may not have run."""
    if not list(driver.parent.glob("GALLERY_HEADER.*")):
        return f"its folder needs a GALLERY_HEADER.rst with the title of the guide ({driver.parent.name})"
    conf = app.config.sphinx_gallery_conf
    if not conf["plot_gallery"] or not app.config.plot_gallery:
        return "the build was told not to run examples (plot_gallery)"
    return "sphinx-gallery's filename_pattern or ignore_pattern leaves it out"


def check_pages(app: Sphinx, exception: Exception | None) -> None:
    """Fail a build that wrote no HTML for an example.

    Raises:
        ExtensionError: Names the page.
    """
    if exception is not None or app.builder.format != "html":
        return
    root = Path(app.srcdir).parent
    for driver in drivers(root):
        html = Path(app.outdir) / "gallery" / driver.parent.name / f"{driver.stem}.html"
        if not html.is_file():
            raise ExtensionError(f"the example {driver.relative_to(root)} ran, but {html} was not written")


def setup(app: Sphinx) -> dict[str, bool]:
    """Put the guard around the gallery's own run."""
    app.setup_extension("sphinx_gallery.gen_gallery")
    for listener in list(app.events.listeners["builder-inited"]):
        if listener.handler is gen_gallery.generate_gallery_rst:
            app.disconnect(listener.id)
    app.connect("builder-inited", forget_outdated, priority=400)
    app.connect("builder-inited", run_gallery)
    app.connect("build-finished", check_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
