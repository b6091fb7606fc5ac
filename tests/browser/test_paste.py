"""The paste box: what a reader pastes or chooses, and which entry the box finds for it."""

from __future__ import annotations

from failure_entries import ROOT, recordings
from support.site_search import filled

from srunbook.explain import Scanner, Trouble, diagnose, load_entries, load_ordinary
from srunbook.explain.report import SAYS_NOTHING
from srunbook.explain.scan import TRACEBACK

PAGE = "troubleshooting/index.html"
NCCL = "RuntimeError: Distributed package doesn't have NCCL built in"
TASK = "srun: error: gpu4: task 1"
FAILED = f"{TASK}: Exited with exit code 1"
STEP = "slurmstepd-gpu3: error: *** STEP 50.0 ON gpu3 CANCELLED AT 2026-11-23T16:41:07 ***"
LOGS = [
    *("\n".join(run.output) for _, run in recordings(ROOT)),
    *(filled(form, "4711", "gpu17.cluster") for entry in load_entries().values() for form in entry.messages),
    f"{FAILED}\n{STEP}",
    f"{STEP}\n{FAILED}",
    "srun: error: gpu4: tasks 0,4-7: Killed",
    f"{TASK}: Terminated",
    f"2026-11-20 10:00:00,123 - \x1b[31mlost\x1b[0m\r[default0]:[rank3]: \x1b[31m{NCCL}\x1b[0m",
    "epoch 1  train error: 0.412  test error: 0.45",
    "ValueError: tried again\nrank 0/2 end steps=9\nrank 1/2 end steps=9",
    "ValueError: lost\nrank 0/2 end steps=9",
    "error: slow disk\nTraining finished\nloss 0.5",
    "E0000 00:00:17.2 9 x.cc:1] no answer",
    '1: Traceback (most recent call last):\n1:   File "a.py", line 3, in <module>',
    f'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n{STEP}',
]
FIND = """(logs) => logs.map((log) => {
  document.querySelector("#paste-text").value = log;
  document.querySelector(".paste-form").requestSubmit();
  const result = document.querySelector(".paste-result");
  return [result.querySelector("a")?.getAttribute("href") ?? "", result.querySelector("pre")?.textContent ?? ""];
})"""


def explained(scanner, log):
    """Return the page of the entry and the line that Python finds in a log; a warning where nothing failed."""
    found = diagnose([scanner.scan("", [log.encode()])])
    finding = found.cause or next(iter([*found.warnings, *(found.to_search if found.healthy else [])]), None)
    if finding is None:
        return "", ""
    silent = finding.weight is Trouble.ENDED or finding.text == TRACEBACK
    slug = finding.slug or (SAYS_NOTHING if silent else "")
    return f"{slug}.html" if slug else "", finding.text


def paste(page, text):
    """Paste a text into the box, and return what the box says."""
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.locator("#paste-text").focus()
    page.keyboard.press("Control+V")
    page.locator(".paste-result p").first.wait_for()
    return page.locator(".paste-result").inner_text()


def test_pasted_log(open_page):
    """A pasted log gets the line that failed first, its fix and its page."""
    page = open_page(PAGE)
    text = paste(page, f"0: rank 0/2 start host=gpu17\n0: {NCCL}\n")

    assert text.startswith("The first failure:\n")
    assert f"0: {NCCL}" in text
    fix = "Fix: Ask for GPUs in the job script, #SBATCH --gpus-per-node=4, or use the gloo backend on CPU nodes."
    assert fix in text
    page.locator(".paste-result a").click()
    page.wait_for_url("**/troubleshooting/torch-nccl-without-gpu.html")


def test_finds_what_the_command_finds(open_page):
    """In all recorded outputs, and for all messages of entries, the box finds the entry that Python finds."""
    scanner = Scanner(load_entries(), load_ordinary())
    found = open_page(PAGE).evaluate(FIND, LOGS)

    assert len({entry for entry, _ in found}) > 100
    for log, (entry, line) in zip(LOGS, found, strict=True):
        wanted, text = explained(scanner, log)
        assert entry == wanted, log
        assert entry or text[:400] in line, log


def test_chosen_file_and_clear(open_page):
    """A file that was chosen is read as a pasted log. What no entry knows, and an empty field, are said to be so."""
    page = open_page(PAGE)
    result = page.locator(".paste-result")
    for text, said in {
        f"step 1\n{NCCL}": NCCL,
        "KeyError: 'a'": "No entry has this message",
        "a": "Nothing looks like a failure",
    }.items():
        page.locator("input[type=file]").set_input_files(
            {"name": "job.log", "mimeType": "text/plain", "buffer": text.encode()}
        )
        result.get_by_text(said).wait_for()
    page.get_by_role("button", name="Clear").click()
    assert result.inner_text() == ""
    page.get_by_role("button", name="Find the cause").click()
    assert result.inner_text() == "Nothing to read: paste the log first."


def test_everybody_can_read_it(open_page, look, complaints):
    """Box and answer satisfy WCAG, and nothing is wider than the window."""
    page = open_page(PAGE, **look)
    paste(page, f"{NCCL} {'x' * 300}")

    assert complaints(page, ".paste-box") == []


def test_plain_page(open_page):
    """From a disk the box works; without JavaScript the page says how to do the same in a terminal."""
    from_disk, plain = open_page(PAGE, disk=True), open_page(PAGE, java_script_enabled=False)
    from_disk.locator("#paste-text").fill(f"2: {NCCL}")
    from_disk.get_by_role("button", name="Find the cause").click()

    assert "Fix: Ask for GPUs" in from_disk.locator(".paste-result").inner_text()
    assert "srunbook explain slurm-17.out" in plain.locator(".paste-box").inner_text()
