"""The built site, served on this machine, and a browser that may speak to nobody else."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}
"""WCAG 2.2 up to level AA, without axe's own "best practices": the theme's landmarks have no names."""


class Host(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each request, and the site's own page for missing ones, as hosts do."""

    def log_message(self, format, *args):
        """Say nothing."""

    def send_error(self, code, message=None, explain=None):
        """Send the page for missing addresses."""
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((SITE / "404.html").read_bytes())


@pytest.fixture(scope="session")
def site():
    """Serve the site in a folder, as many hosts do; yield its address.

    Raises:
        pytest.fail.Exception: The site was not built.
    """
    report = SITE.with_name("site-included.json")
    if not (SITE / "index.html").is_file() or not report.is_file():
        pytest.fail(f"{SITE} is not there, or its build failed ({report.name}): run `python3 noxfile.py -s docs` first")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Host, directory=SITE.parent))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/{SITE.name}/"
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
    """Open a page of the site in a window of its own; at the end, no other host must have been asked for anything.

    With `disk` the page comes from a folder, not from a server.
    """
    contexts, asked = [], []
    folder = f"{SITE.as_uri()}/"

    def opener(name, *, width=1280, scheme="light", disk=False, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        response = page.goto((folder if disk else site) + name)
        assert disk or response.ok, f"{name}: {response.status}"
        return page

    yield opener
    for context in contexts:
        context.close()
    foreign = [
        url for url in asked if not url.startswith((site.removesuffix(f"{SITE.name}/"), folder, "data:", "blob:"))
    ]
    assert not foreign


@pytest.fixture(
    params=[
        ("light", 1400),
        ("dark", 360),
        pytest.param(("light", 360), marks=pytest.mark.full),
        pytest.param(("dark", 1400), marks=pytest.mark.full),
    ],
    ids=lambda look: f"{look[0]}-{look[1]}",
)
def look(request):
    """Return the theme and the width of a window, for `open_page`."""
    return dict(zip(("scheme", "width"), request.param, strict=True))


@pytest.fixture
def complaints():
    """Return what axe, and the width of the window, have to complain about on a page or a part of it."""

    def find(page, part=None):
        found = Axe().run(page, context=part, options=RULES).response["violations"]
        told = [f"{part or page.url}: {one['id']}: {one['nodes'][0]['html']}" for one in found]
        width = page.evaluate("document.documentElement.scrollWidth")
        return told + ([f"{page.url} is {width} pixels wide"] if width > page.viewport_size["width"] else [])

    return find


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
