"""The paste box: what a reader pastes, drops or chooses, and what the box says of it."""

from __future__ import annotations

import base64

PAGE = "troubleshooting/index.html"
NCCL = "RuntimeError: Distributed package doesn't have NCCL built in"
PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.1]:33164"
FILES = {
    "rank_0.log": f"rank 0/2 start host=gpu17\n[rank0]: {PEER}\n",
    "rank_1.log": f"rank 1/2 start host=gpu18\nFile /home/alice/train.py\n\x1b[31m[rank1]: {NCCL}\x1b[0m\n",
}
DROP = """(files) => {
  const moved = new DataTransfer();
  for (const [name, content] of Object.entries(files)) {
    moved.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], name));
  }
  const target = document.querySelector(".paste-box");
  for (const type of ["dragover", "drop"]) {
    target.dispatchEvent(new DragEvent(type, { dataTransfer: moved, bubbles: true, cancelable: true }));
  }
}"""
PASTE = """(text) => {
  const moved = new DataTransfer();
  moved.setData("text/plain", text);
  const field = document.querySelector("#paste-text");
  const event = new ClipboardEvent("paste", { clipboardData: moved, bubbles: true, cancelable: true });
  if (field.dispatchEvent(event)) field.setRangeText(text);
}"""


def drop(page, files):
    """Drop files, given as texts or bytes by name."""
    raw = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    page.evaluate(DROP, {name: base64.b64encode(data).decode() for name, data in raw.items()})


def report(page):
    """Wait for the report, and return its text."""
    box = page.locator(".paste-result")
    box.wait_for()
    return box.inner_text()


def status(page, text):
    """Wait for what the box says, and return it with its complaints."""
    page.locator(".paste-status", has_text=text).wait_for()
    return page.locator(".paste-problems").inner_text()


def test_pasted_log(open_page, site):
    """A pasted log gets its cause with rank, node and line, fix and page; the data load with the first use."""
    page = open_page(PAGE)
    loaded = "performance.getEntriesByType('resource').filter(one => /explain-data|explain-scan/.test(one.name)).length"
    before = page.evaluate(loaded)
    page.evaluate("text => navigator.clipboard.writeText(text)", f"0: rank 0/2 start host=gpu17\n0: {NCCL}\n")
    page.locator("#paste-text").focus()
    page.keyboard.press("Control+V")
    text = report(page)

    assert (before, page.evaluate(loaded)) == (0, 2)
    assert "The first failure\n" in text
    assert "rank 0 on gpu17, pasted text, line 2" in text
    assert NCCL in text
    assert "Fix: Ask for GPUs in the job script, or choose gloo where there are none." in text
    link = page.locator(".paste-page a")
    assert link.get_attribute("href") == f"{site}troubleshooting/torch-nccl-without-gpu.html"
    assert page.request.get(link.get_attribute("href")).ok


def test_dropped_logs_and_masked_copy(open_page):
    """Of several ranks the one that failed first is named; the copy masks names, unless the reader wants them."""
    page = open_page(PAGE)
    drop(page, FILES)
    text = report(page)
    assert "rank 1 on gpu18, rank_1.log, line 3" in text
    assert text.index(NCCL) < text.index("What followed") < text.index("Connection closed by peer")
    page.get_by_role("button", name="Copy the report").click()
    page.locator(".paste-copied", has_text="Read it before you post it").wait_for()
    masked = page.evaluate("navigator.clipboard.readText()")
    page.get_by_label("Mask users").uncheck()
    page.get_by_role("button", name="Copy the report").click()
    page.locator(".paste-copied", has_text="with all names").wait_for()
    plain = page.evaluate("navigator.clipboard.readText()")

    assert "rank 1 on <host2>, rank_1.log, line 3" in masked
    assert not any(name in masked for name in ("gpu17", "gpu18", "10.0.0.1"))
    assert "rank 1 on gpu18, rank_1.log, line 3" in plain
    assert "[10.0.0.1]:33164" in plain


def test_chosen_files_and_clear(open_page):
    """Files chosen with the button are read as dropped ones; more can be added, and all cleared."""
    page = open_page(PAGE)
    files = [{"name": name, "mimeType": "text/plain", "buffer": text.encode()} for name, text in FILES.items()]
    page.locator("input[type=file]").set_input_files(files[:1])
    assert "Connection closed by peer" in report(page)
    page.locator("input[type=file]").set_input_files(files[1:])
    status(page, "Read 2 logs")
    assert "rank 1 on gpu18" in report(page)
    page.get_by_role("button", name="Clear").click()

    assert page.locator(".paste-result").is_hidden()
    assert page.locator(".paste-logs").is_hidden()
    assert page.evaluate("document.activeElement.id") == "paste-text"


def test_what_no_line_explains(open_page, site):
    """Lines that no entry knows are named as worth searching for; else the box names the task that ended first."""
    page = open_page(PAGE)
    page.locator("#paste-text").fill("KeyError: 'a'\nOSError: b\nValueError: c\nTypeError: d\nstep 1\n")
    page.get_by_role("button", name="Find the cause").click()
    text = report(page)

    assert text.startswith("No entry knows this\n")
    assert "KeyError: 'a'" in text
    assert page.locator(".paste-result pre").count() == 3

    page.get_by_role("button", name="Clear").click()
    log = "1: Traceback (most recent call last):\nsrun: error: gpu18: task 1: Exited with exit code 1\n"
    page.locator("#paste-text").fill(log)
    page.get_by_role("button", name="Find the cause").click()
    text = report(page)

    assert text.startswith("Rank 1 on gpu18 ended first, with exit code 1\n\nNothing that it printed says why.\n")
    assert "rank 1 on gpu18, pasted text, line 2" in text
    link = page.locator(".paste-page a")
    assert link.get_attribute("href") == f"{site}troubleshooting/slurm-rank-says-nothing.html"


BAD = [
    ({"a.log": ""}, "Read 0 logs", "a.log: the file is empty"),
    ({"core.1": bytes(range(256)) * 40}, "Read 1 log,", "core.1: this does not look like text"),
    ({"a.log.gz": b"\x1f\x8bnothing"}, "Read 0 logs", "a.log.gz: the gzip file is"),
]


def test_bad_and_large_input(open_page):
    """Nothing, no text and a damaged file get a clear line each; megabytes stay out of the field, and are read."""
    page = open_page(PAGE)
    page.locator("#paste-text").fill("  \n")
    page.get_by_role("button", name="Find the cause").click()
    status(page, "Nothing to read: paste the log, or choose its files.")
    for files, said, problem in BAD:
        page.get_by_role("button", name="Clear").click()
        drop(page, files)

        assert problem in status(page, said)

    page.get_by_role("button", name="Clear").click()
    page.locator("#paste-text").focus()
    page.evaluate(PASTE, f"{'step 1 loss 0.25 of many' * 4}\n" * 40_000 + f"3: {NCCL}\n")

    assert "rank 3, pasted text, line 40001" in report(page)
    assert page.locator("#paste-text").input_value() == ""
    assert "pasted text (" in page.locator(".paste-logs").inner_text()


def test_everybody_can_read_it(open_page, look, complaints):
    """Box and report satisfy WCAG, and nothing is wider than the window."""
    page = open_page(PAGE, **look)
    drop(page, {**FILES, "empty.log": ""})
    report(page)

    assert complaints(page, ".paste-box") == []


def test_plain_page(open_page):
    """From a disk the box works; without JavaScript the page says how to do the same in a terminal."""
    from_disk, plain = open_page(PAGE, disk=True), open_page(PAGE, java_script_enabled=False)
    from_disk.locator("#paste-text").fill(f"2: {NCCL}")

    assert "rank 2, pasted text, line 1" in report(from_disk)
    assert "srunbook explain slurm-17.out" in plain.locator(".paste-box").inner_text()
