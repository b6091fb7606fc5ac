"""The built site, served on this machine, and a browser that may speak to nobody else."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, format, *args):
        """Say nothing."""


@pytest.fixture(scope="session")
def site():
    """Serve the site; yield its address.

    Raises:
        pytest.fail.Exception: The site was not built.
    """
    report = SITE.with_name("site-included.json")
    if not (SITE / "index.html").is_file() or not report.is_file():
        pytest.fail(f"{SITE} is not there, or its build failed ({report.name}): run `python3 noxfile.py -s docs` first")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    """Start a headless Chromium of this machine.

    Raises:
        pytest.fail.Exception: There is none.
    """
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail(f"no browser found; one of {', '.join(BROWSERS)} must be on PATH (on Debian: package chromium)")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


@pytest.fixture
def open_page(browser, site):
    """Open a page of the site in a window of its own; at the end, no other host must have been asked for anything."""
    contexts, asked = [], []

    def opener(name, *, width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        response = page.goto(site + name)
        assert response.ok, f"{name}: {response.status}"
        return page

    yield opener
    for context in contexts:
        context.close()
    foreign = [url for url in asked if not url.startswith((site, "data:", "blob:"))]
    assert not foreign


@pytest.fixture(scope="session")
def page_names():
    """Return all pages of the site but those that Sphinx makes by itself."""
    pages = [path for path in SITE.rglob("*.html") if 'http-equiv="refresh"' not in path.read_text(encoding="utf-8")]
    names = sorted(path.relative_to(SITE).as_posix() for path in pages)
    return [name for name in names if name not in ("404.html", "genindex.html", "py-modindex.html", "search.html")]


@pytest.fixture(scope="session")
def included():
    """Return which pages show which file, as the build reported it."""
    return json.loads(SITE.with_name("site-included.json").read_text(encoding="utf-8"))
