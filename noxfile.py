# /// script
# requires-python = ">=3.11"
# dependencies = ["nox>=2026.4.10"]
# ///
"""The project's sessions: `python3 noxfile.py -l` lists them, and needs nothing but Python 3.11 and venv.

Started without nox, this file makes `.nox/start`, installs nox there and goes on with it.
All sessions share one environment, `.nox/env`, made from pyproject.toml and constraints.txt. Each adds what it needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENV = ROOT / ".nox" / "env"
PYTHON = str(ENV / "bin" / "python")
WHEELS = ROOT / ".nox" / "wheelhouse"
SITE = ROOT / "build" / "site"

try:
    import nox
except ModuleNotFoundError:
    start = ROOT / ".nox" / "start"
    if Path(sys.prefix).resolve() == start:
        raise
    if not (start / "bin" / "nox").exists():
        print(f"nox is not installed: installing it into {start.relative_to(ROOT)}", flush=True)
        venv.EnvBuilder(with_pip=True, clear=True).create(start)
        subprocess.run([start / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", "nox"], check=True)
    os.execv(start / "bin" / "python", [start / "bin" / "python", __file__, *sys.argv[1:]])

nox.needs_version = ">=2026.4.10"
nox.options.sessions = ["docs", "tests"]
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False

SITE_PARTS = [".[jax,lightning]", "--group=docs", "--group=tests"]
ALL_PARTS = [*SITE_PARTS, ".[accelerate,transformers]"]
"""What a session installs: an extra, or a group of pyproject.toml."""

SCRIPTS = [".ci/run", "scripts/**/*.sh", "src/**/*.sh", "slurm/**/*.sbatch", "examples/**/*.sbatch", "examples/**/*.sh"]
SCHEMAS = {
    "vendor.citation-file-format": "CITATION.cff",
    "vendor.github-workflows": ".github/workflows/*.yml",
    "vendor.readthedocs": ".readthedocs.yaml",
}


def environment(session: nox.Session, parts: list[str] = ALL_PARTS) -> None:
    """Make the shared environment, or make it again if pyproject.toml changed; then add the parts that it lacks."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")
    read_by_others = {"tool": {"hatch": project["tool"]["hatch"]}}  # the other tools read their settings at each start
    sources = [json.dumps(project | read_by_others), (ROOT / "constraints.txt").read_text(), sys.version]
    wanted = hashlib.sha256("".join(sources).encode()).hexdigest()
    stamp = ENV / "made-from.json"
    made = json.loads(stamp.read_text()) if stamp.exists() else {}
    if made.get("sources") != wanted:
        made = {"sources": wanted, "parts": []}
        shutil.rmtree(WHEELS, ignore_errors=True)
        shutil.rmtree(ENV, ignore_errors=True)
        venv.EnvBuilder(with_pip=True).create(ENV)
        python(session, "-m", "pip", "install", "--quiet", "--upgrade", "-c", "constraints.txt", "pip", "uv")
    new = [part for part in parts if part not in made["parts"]]
    if new:
        session.log(f"installing {', '.join(new)} into .nox/env, once (about 2 GB in all)")
        uv = [PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON, "--compile-bytecode", "-c", "constraints.txt"]
        options = [word for part in new for word in (["--editable", part] if part.startswith(".") else [part])]
        quiet = [] if sys.stdout.isatty() else ["--quiet"]
        session.run(*uv, *quiet, *options, env=package_places())
        stamp.write_text(json.dumps({"sources": wanted, "parts": [*made["parts"], *new]}))
    python(session, "-m", "docs._ext.failure_entries", silent=True)  # an entry may have changed since the installation


def package_places() -> dict[str, str]:
    """Return where uv finds packages: where pip is told to look, or else PyPI, and PyTorch's index of CPU builds."""
    pip = [PYTHON, "-m", "pip", "config", "list"]
    told = subprocess.run(pip, capture_output=True, text=True, check=True).stdout.replace("\\n", " ")
    places = dict(re.findall(r"\.([\w-]+)='(.*)'$", told, re.MULTILINE))
    uv = {
        "UV_DEFAULT_INDEX": places.get("index-url", ""),
        "UV_INDEX": places.get("extra-index-url", ""),
        "UV_FIND_LINKS": ",".join(places.get("find-links", "").split()),
    }
    uv = {name: value for name, value in uv.items() if value}
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv} if uv else {"UV_TORCH_BACKEND": "cpu"}


def wheels(session: nox.Session) -> None:
    """Download what tests/unit/test_wheel.py installs."""
    if not WHEELS.exists():
        project = nox.project.load_toml(ROOT / "pyproject.toml")["project"]
        half = WHEELS.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        session.log("downloading what tests/unit/test_wheel.py installs into .nox/wheelhouse")
        packages = [*project["dependencies"], *project["optional-dependencies"]["jax"]]
        options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:", "-c", "constraints.txt"]
        python(session, "-m", "pip", "download", *options, "-d", str(half), *packages)
        half.rename(WHEELS)


def python(session: nox.Session, *arguments: str, **options: object) -> None:
    """Run the environment's Python."""
    session.run(PYTHON, *arguments, **options)


def pytest(session: nox.Session, *places: str, workers: int = 0, only: str = "") -> None:
    """Run tests: those in the places given after `--`, or else in these. What fails has a second look, alone.

    Several workers share the modules, for many tests wait half of their time. What each test took is left in build/.
    Tests of programs and job scripts that passed with the same inputs stand, unless an argument asks for all.
    """
    given = any(not argument.startswith("-") and "/" in argument for argument in session.posargs)
    arguments = [argument for argument in session.posargs if argument != "--all"]
    changed = [] if given or {"--all", "--full", "--record"} & {*session.posargs} else ["--changed"]
    gate = ["tests/gate.py", "run", session.name, f"--workers={0 if given else workers}", *changed, "--"]
    python(session, *gate, *(["-m", only] if only else []), *arguments, *([] if given else places))


def prepare_cluster(session: nox.Session) -> None:
    """Make the roots and the image of the test cluster, so that no test has to; this takes minutes once."""
    given = session.posargs
    chosen = given[given.index("--slurm") + 1 :][:1] if "--slurm" in given else []
    python(session, "tests/prepare_cluster.py", *chosen)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site and run its examples (`-- --serve` serves it and rebuilds it live)."""
    environment(session, SITE_PARTS)
    options = ["-c", ".", "-W", "-n", "--keep-going", "-d", "build/doctrees", "docs", str(SITE)]
    if "--serve" in session.posargs:
        others = [argument for argument in session.posargs if argument != "--serve"]
        places = ("examples", "slurm", "scripts", "src", "bench", "recordings", "conf.py")
        watched = [f"--watch={name}" for name in places if (ROOT / name).exists()]
        ignored = [f"--re-ignore={pattern}" for pattern in (r"/docs/gallery/", r"__pycache__", r"/\.[^/]*$")]
        python(session, "-m", "sphinx_autobuild", *watched, *ignored, *others, *options)
        return
    report = SITE.with_name("site-included.json")
    failed = SITE.with_name("failed-example.txt")  # docs/_ext/gallery.py writes it
    for left in (report, failed):
        left.unlink(missing_ok=True)
    sphinx = ["-m", "sphinx", "-j1", *session.posargs, *options]
    try:
        try:
            python(session, *sphinx)
        except Exception:
            if not failed.exists():
                raise
            session.log("an example failed: a second look, in a fresh process")
            python(session, *sphinx)
        if not report.exists():
            session.error("Sphinx ended with status 0 but did not finish: did an example end the process?")
        offline = SITE / "zips" / "srunbook-site.zip"
        offline.unlink(missing_ok=True)
        shutil.move(shutil.make_archive(str(SITE.with_name("srunbook-site")), "zip", SITE), offline)
        python(session, "tests/gate.py", "run", session.name, "--", "--quiet", "-m", "built", "tests/site")
        if failed.exists():
            python(session, "tests/gate.py", "flaky", session.name, failed.read_text(encoding="utf-8"))
    except Exception:
        # A page that was read is not read again, and so would not be complained about again.
        (ROOT / "build" / "doctrees" / "environment.pickle").unlink(missing_ok=True)
        report.unlink(missing_ok=True)  # what tests the site asks for it
        raise
    session.log(f"the site: {SITE / 'index.html'}")


@nox.session
def tests(session: nox.Session) -> None:
    """Run unit tests, doctests, and the examples that changed in the simulation (`-- --all`: all; `-- --full`)."""
    environment(session)
    wheels(session)
    places = ["src", "docs/_ext", "recordings", "tests/unit", "tests/simulation", "tests/site"]
    pytest(session, *places, workers=2, only="not built")


@nox.session(default=False)
def slurm(session: nox.Session) -> None:
    """Run the scripts that changed on a real Slurm (`-- --all`; `-- --slurm all`; `-- --record`). Needs root."""
    environment(session)
    prepare_cluster(session)
    pytest(session, "tests/cluster", workers=2, only="not fault or short_fault")


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Inject faults on a real Slurm: into ranks, nodes, disks, signals (`-- --full`; `-- --record`). Needs root."""
    environment(session)
    prepare_cluster(session)
    pytest(session, "tests/cluster/faults", workers=2)


@nox.session(default=False)
def versions(session: nox.Session) -> None:
    """Run the guides' programs with other versions of Python and frameworks (`-- jax==0.6`; `-- --record`)."""
    environment(session)
    python(session, "tests/versions.py", *session.posargs, env=package_places())


@nox.session(default=False)
def newest(session: nox.Session) -> None:
    """Run everything with the newest packages, in a copy of the last commit, and list by page what drifted."""
    environment(session)
    python(session, "tests/newest.py", *session.posargs, env=package_places())


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Check style, types, who imports whom, spelling, shell scripts, workflow files."""
    environment(session, [*ALL_PARTS, "--group=lint"])
    python(session, "-m", "ruff", "check", ".")
    python(session, "-m", "ruff", "format", "--check", ".")
    python(session, "-m", "mypy")
    session.run(str(ENV / "bin" / "lint-imports"), "--no-logo", silent=True)
    python(session, "-m", "codespell_lib")
    python(session, "-m", "sphinxlint", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    for schema, pattern in SCHEMAS.items():
        files = [str(path) for path in sorted(ROOT.glob(pattern))]
        python(session, "-m", "check_jsonschema", "--builtin-schema", schema, *files)
    session.run(str(ENV / "bin" / "zizmor"), "--offline", "--quiet", ".github/workflows")
    scripts = [str(path) for pattern in SCRIPTS for path in sorted(ROOT.glob(pattern))]
    # Not 1091: the environments that scripts activate exist on a site alone. Not 2016: tasks expand what srun gets.
    # Not 2329: they call exported functions.
    session.run(str(ENV / "bin" / "shellcheck"), "--shell=bash", "--exclude=SC1091,SC2016,SC2329", *scripts)
    for script in scripts:
        session.run("bash", "-n", script)


@nox.session(default=False)
def browser(session: nox.Session) -> None:
    """Look at the built site in a browser, one page of each kind (`-- --full`: every page). Needs chromium."""
    environment(session, [*ALL_PARTS, "--group=browser"])
    pytest(session, "tests/browser")


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Run what needs an NVIDIA GPU, tests and measurements, in pieces, and say what is missing (`-- PIECE`)."""
    environment(session)
    python(session, "bench/on_gpu.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure what the figures show: all of bench/, or what you name (`-- simulate_start`). Needs an idle machine."""
    environment(session)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "bench").glob("*.py"))}
    measured = [name for name in texts if (ROOT / "bench" / "results" / f"{name}.json").exists()]
    special = re.compile(r"Needs\s+an\s+NVIDIA\s+GPU|npm\s+package")  # in a docstring: only if it's named
    for name in session.posargs or [name for name in measured if not special.search(texts[name])]:
        options = ["--peers", str(peers(session))] if "--peers" in texts[name] else []
        python(session, str(ROOT / "bench" / f"{name}.py"), *options)


@nox.session(default=False)
def dist(session: nox.Session) -> None:
    """Build the wheel and the source distribution, check them, and try them in empty environments (`-- --full`)."""
    environment(session, [*ALL_PARTS, "--group=dist"])
    wheels(session)
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    build = ["build", "--offline", "--no-build-isolation", "--python", PYTHON, "--out-dir", str(folder)]
    python(session, "-m", "uv", *build)  # the wheel from the source distribution
    built = sorted(str(path) for path in folder.glob("srunbook-*"))
    python(session, "-m", "twine", "check", "--strict", *built)
    (wheel,) = folder.glob("*.whl")
    tried = [f"tests/{tier}/test_wheel.py" for tier in ("unit", "cluster")]
    python(session, "-m", "pytest", f"--wheel={wheel}", *session.posargs, *tried)


def peers(session: nox.Session) -> Path:
    """Install the other packages that some benchmarks measure, apart from the environment; return their folder."""
    folder = ROOT / "build" / "peers"
    if not folder.exists():
        half = folder.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        wanted = ["--no-deps", "--target", str(half), "-r", str(ROOT / "bench" / "peers.txt")]
        python(session, "-m", "pip", "install", "--quiet", *wanted)
        half.rename(folder)
    return folder


if __name__ == "__main__":
    nox.main()
