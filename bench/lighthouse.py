"""What Lighthouse says of the built site: scores from 0 to 100 for a page of each kind.

python bench/lighthouse.py --program LIGHTHOUSE    # writes bench/results/lighthouse.json; needs Chromium and build/site

LIGHTHOUSE is the command of the npm package `lighthouse`, which is not among the dependencies. Pages are compressed on
their way, as hosts do it. Lighthouse takes the browser for a phone on a slow network, and counts how long a page
computes: so what else the machine did is a parameter of the result.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.program import write
from measurements import Configuration

SITE = Path(__file__).parents[1] / "build" / "site"
RESULT = Path(__file__).parent / "results" / "lighthouse.json"
PAGES = {
    "the first page": "index.html",
    "a chapter of a guide": "guides/torchrun/several-nodes.html",
    "a troubleshooting entry": "troubleshooting/torch-port-in-use.html",
    "the form for a script": "start/get-your-script.html",
}
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
CHROME = "--headless=new --no-sandbox --disable-gpu"
TEXTS = (".html", ".css", ".js", ".json", ".svg")


class Compressing(http.server.SimpleHTTPRequestHandler):
    """Serve files as hosts do: texts compressed, one connection for several requests."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a file."""
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            return self.send_error(404)
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        if path.suffix in TEXTS:
            data = gzip.compress(data)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "max-age=31536000")
        self.end_headers()
        self.wfile.write(data)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served() -> Iterator[str]:
    """Serve the built site on this machine; yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Compressing, directory=SITE))
    server.daemon_threads = True  # a browser leaves its connections open
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def report(program: str, chrome: str, address: str) -> dict[str, Any]:
    """Return Lighthouse's report on a page.

    Raises:
        subprocess.CalledProcessError: Lighthouse failed; it printed why.
    """
    options = ["--quiet", "--output=json", f"--chrome-flags={CHROME}", f"--only-categories={','.join(CATEGORIES)}"]
    environ = {**os.environ, "CHROME_PATH": chrome}
    found = subprocess.run([program, address, *options], env=environ, check=True, stdout=subprocess.PIPE)
    read: dict[str, Any] = json.loads(found.stdout)
    return read


def scores(read: dict[str, Any]) -> dict[str, float]:
    """Return the score of each category, from 0 to 100."""
    return {name.replace("-", "_"): round(100 * read["categories"][name]["score"], 1) for name in CATEGORIES}


def failed(read: dict[str, Any]) -> list[str]:
    """List the audits that a page fails, without those of its speed."""
    items = [item for name in CATEGORIES[1:] for item in read["categories"][name]["auditRefs"] if item["weight"]]
    return sorted({item["id"] for item in items if read["audits"][item["id"]]["score"] not in (None, 1)})


def main() -> None:
    """Look at each page in turn, several times; name every audit that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="lighthouse")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--load", default="quiet", help="what else the machine does: a word for the result")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    chrome = shutil.which("chromium") or shutil.which("google-chrome")
    if not shutil.which(options.program) or chrome is None or not (SITE / "index.html").is_file():
        parser.error(f"needs {options.program!r} and Chromium on PATH, and the built site in {SITE}")

    samples: dict[str, dict[str, list[float]]] = {name: {} for name in PAGES}
    with served() as site:
        for _ in range(options.repeats):
            for name, page in PAGES.items():
                read = report(options.program, chrome, site + page)
                for category, score in scores(read).items():
                    samples[name].setdefault(category, []).append(score)
                print(f"{name}: {scores(read)}", *failed(read), sep="\n  fails: ", flush=True)

    rows = [
        Configuration(name, {"page": name, "load": options.load, "audits": "as on a phone"}, found)
        for name, found in samples.items()
    ]
    chromium = read["environment"]["hostUserAgent"].split("Chrome/")[1].split()[0]
    versions = {"lighthouse": read["lighthouseVersion"], "chromium": chromium}
    parameters = {"repeats": options.repeats, "order": "in turn", "one_minute_load": round(os.getloadavg()[0], 1)}
    write(options.output, rows, versions=versions, parameters=parameters)


if __name__ == "__main__":
    main()
