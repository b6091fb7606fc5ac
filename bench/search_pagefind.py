"""What Pagefind finds for the queries of search_rate.py, in the same pages with their descriptions and keywords.

python bench/search_pagefind.py --program PAGEFIND    # writes bench/results/search_pagefind.json

PAGEFIND is the program of the Python package `pagefind_bin`, which is not among the dependencies. Needs Chromium and
build/site.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import html
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.program import write
from lighthouse import SITE, Compressing
from measurements import Configuration
from playwright.sync_api import Browser, Page, sync_playwright
from search_rate import SETS, rate

RESULT = Path(__file__).parent / "results" / "search_pagefind.json"
APART = "questions that were kept apart"
WEIGHTS = {"about": 2, "keywords": 3}
"""How much the head of a page counts: the same as in search-rank.js."""

SEARCH = """async (queries) => {
  const pagefind = await import("/pagefind/pagefind.js");
  const answers = [];
  for (const query of queries) {
    const found = await pagefind.search(query);
    const first = await Promise.all(found.results.slice(0, 3).map((result) => result.data()));
    answers.push({ results: first.map(({ raw_url }) => ({ page: raw_url.replace("/", "") })) });
  }
  return answers;
}"""


class Counting(Compressing):
    """Counts the bytes that the browser loads."""

    sent = 0

    def send_header(self, keyword: str, value: str) -> None:
        """Add the length of a file."""
        if keyword == "Content-Length":
            Counting.sent += int(value)
        super().send_header(keyword, value)


@contextmanager
def opened(browser: Browser, folder: Path, name: str) -> Iterator[Page]:
    """Serve a folder, and open one of its pages in a browser that has none of its files yet."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Counting, directory=folder))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/{name}", wait_until="networkidle")
        Counting.sent = 0
        yield page
    server.shutdown()
    server.server_close()


def index_pages(program: str, pages: list[dict[str, Any]], folder: Path) -> None:
    """Copy the pages, with what their heads say below their titles, and let Pagefind index the copies."""
    for page in pages:
        text = (SITE / page["address"]).read_text(encoding="utf-8")
        told = {"about": page["about"], "keywords": ", ".join(page["keywords"])}
        parts = (f'<p data-pagefind-weight="{WEIGHTS[name]}">{html.escape(part)}</p>' for name, part in told.items())
        copy = folder / page["address"]
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text.replace("</h1>", "</h1>" + "".join(parts), 1), encoding="utf-8")
    options = ["--root-selector", "article", "--keep-index-url", "--quiet"]
    subprocess.run([program, "--site", folder, *options], check=True)


def ask(name: str, page: Page) -> Configuration:
    """Ask the queries of a set; also count those that find nothing."""
    queries = SETS[name]()
    answers = page.evaluate(SEARCH, [query.text for query in queries])
    row = rate(name, queries, answers)
    row.samples["nothing"] = [float(sum(not answer["results"] for answer in answers))]
    return row


def kilobytes(paths: list[Path]) -> float:
    """Return the size of files that are compressed each."""
    return sum(len(gzip.compress(path.read_bytes())) for path in paths) / 1000


def loads(browser: Browser, copies: Path) -> list[Configuration]:
    """Weigh the whole index, and what the first search of a reader loads, with Pagefind and on the site."""
    theirs = []
    for query in SETS[APART]():
        with opened(browser, copies, "index.html") as page:
            page.evaluate(SEARCH, [query.text])
            theirs.append(Counting.sent / 1000)
    with opened(browser, SITE, "index.html") as page:
        page.locator(".sidebar-search").click()
        page.locator(".sidebar-search").fill("checkpoint")
        page.wait_for_selector("#search-list:not([hidden]) a.search-option")
        ours = [Counting.sent / 1000]
    parts = [path for name in ("index", "fragment") for path in (copies / "pagefind" / name).iterdir()]
    whole = {"Pagefind": kilobytes(parts), "this site": kilobytes([SITE / "_static" / "search-index.js"])}
    return [
        Configuration(name, {}, {"index_kB": [whole[name]], "first_search_kB": loaded})
        for name, loaded in (("Pagefind", theirs), ("this site", ours))
    ]


def main() -> None:
    """Index the pages, ask all sets, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="pagefind")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    chrome = shutil.which("chromium") or shutil.which("google-chrome")
    script = SITE / "_static" / "search-index.js"
    if not shutil.which(options.program) or chrome is None or not script.is_file():
        parser.error(f"needs {options.program!r} and Chromium on PATH, and the built site in {SITE}")
    pages = json.loads(script.read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n"))["pages"]

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        copies = Path(folder)
        index_pages(options.program, pages, copies)
        browser = playwright.chromium.launch(executable_path=chrome, args=["--no-sandbox", "--disable-gpu"])
        with opened(browser, copies, "index.html") as page:
            rows = [ask(name, page) for name in SETS]
        rows += loads(browser, copies)
        version = subprocess.run([options.program, "--version"], check=True, capture_output=True, text=True).stdout
        write(options.output, rows, versions={"pagefind": version.split()[-1], "chromium": browser.version})


if __name__ == "__main__":
    main()
