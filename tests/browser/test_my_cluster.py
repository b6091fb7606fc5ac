"""The panel "My cluster": what the reader fills in is in every job script that pages show, copy and download."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.node import call

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tests" / "support" / "my_cluster.mjs"
PAGE = "guides/torchrun/several-nodes.html"
SCRIPT = "slurm/torchrun/ddp.sbatch"

CONFIG = {
    "partition": "batch",
    "account": None,
    "platform": "gpu",
    "gpus_per_node": "a100:4",
    "cpus_per_node": 64,
    "modules_to_load": ["cuda/12.4"],
    "conda_environment": "~/miniforge3/envs/torch-env",
}
"""What the tests fill in, as a configuration."""


def expected(config, script=SCRIPT):
    """Return what the panel's program makes of a script, run outside of a page."""
    ((fitted,),) = call(RUNNER, {"scripts": [(ROOT / script).read_text(encoding="utf-8")], "clusters": [config]})
    return fitted


def open_panel(page, button="My cluster"):
    """Open the panel, from the page's header or with another button."""
    page.get_by_role("button", name=button).first.click()
    return page.get_by_role("dialog")


def fill(panel):
    """Fill in `CONFIG`."""
    panel.get_by_label("Partition", exact=True).fill("batch")
    panel.get_by_label("Account").fill("none")
    panel.get_by_label("GPUs of a node").fill("a100:4")
    panel.get_by_label("CPUs of a node").fill("64")
    panel.get_by_label("Python comes from").select_option("conda")
    panel.get_by_label("Where it is").fill(CONFIG["conda_environment"])
    panel.get_by_label("Modules to load").fill("cuda/12.4")


EVERY_SCRIPT_IS_FITTED = """
[...document.querySelectorAll("article .code-file")]
  .filter((box) => box.querySelector(":scope > .code-file-caption .fit-open"))
  .every((box) => box.querySelector(":scope > .fit-bar"))
"""
"""Each script is fetched for itself, and has a bar above it when it is shown."""


def fit(page, button="My cluster"):
    """Fill in the panel and close it with its button."""
    panel = open_panel(page, button)
    fill(panel)
    panel.get_by_role("button", name="Fit the scripts").click()
    panel.wait_for(state="hidden")
    page.wait_for_function(EVERY_SCRIPT_IS_FITTED)


def box_of(page, script=SCRIPT):
    """Return the frame of a script."""
    return page.locator("article .code-file").filter(has=page.locator(".code-file-name", has_text=script)).first


def copied(page, box):
    """Return what the copy button of a script puts on the clipboard."""
    page.evaluate("navigator.clipboard.writeText('nothing yet')")
    box.hover()
    box.locator("button.copybtn").first.click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text !== 'nothing yet')")
    return page.evaluate("navigator.clipboard.readText()") + "\n"  # which the button leaves out


def downloaded(page, button, folder):
    """Return the file that a click downloads."""
    with page.expect_download() as caught:
        button.click()
    caught.value.save_as(folder / caught.value.suggested_filename)
    return folder / caught.value.suggested_filename


def test_values_are_in_the_script(open_page, site, tmp_path):
    """Filled in once, the values are in what is shown, copied and downloaded, on the next page too, until forgotten."""
    page = open_page(PAGE)
    box = box_of(page)
    original = box.locator("pre").first.inner_text()
    fit(page)
    marked = box.locator("mark.fitted").all_inner_texts()

    assert any("--partition=batch" in text for text in marked)
    assert any("conda" in text or "miniforge3" in text for text in marked)
    assert copied(page, box) == expected(CONFIG)
    assert downloaded(page, box.locator("a.download"), tmp_path).read_text() == expected(CONFIG)
    assert "That was the original" in box.locator(".badge-line").inner_text()

    box.get_by_role("button", name="Show the original").click()
    assert box.locator("pre").first.inner_text() == original
    assert copied(page, box) == (ROOT / SCRIPT).read_text()
    box.get_by_role("button", name="Show it fitted").click()
    assert copied(page, box) == expected(CONFIG)

    page.reload()
    page.locator("mark.fitted").first.wait_for()
    assert copied(page, box_of(page)) == expected(CONFIG)
    page.goto(site + "start/environments.html")
    page.locator("mark.fitted").first.wait_for(state="attached")

    panel = open_panel(page)
    assert panel.get_by_label("GPUs of a node").input_value() == "a100:4"
    assert panel.get_by_label("Account").input_value() == "none"
    panel.get_by_role("button", name="Forget everything").click()
    page.wait_for_function("!document.querySelector('mark.fitted')")
    assert page.evaluate("localStorage.length === 0 || !localStorage.getItem('srunbook.cluster')")


def test_a_known_site(open_page):
    """A known site fills in what is known of it, in place of another one's values; what the reader said stays."""
    panel = open_panel(open_page(PAGE))
    panel.get_by_label("Account").fill("physics")
    panel.get_by_label("Known site").select_option("mila")
    panel.get_by_label("Known site").select_option("raven")

    assert panel.get_by_label("GPUs of a node").input_value() == "a100:4"
    assert panel.get_by_label("Partition", exact=True).input_value() == "none"  # it has a default
    assert panel.get_by_label("Account").input_value() == "physics"


def test_every_script_of_a_page(open_page):
    """From the button of one script, all come out fitted, also below a difference; and back."""
    page = open_page("guides/svgd/quick-start.html")
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    before = page.locator("article pre").all_text_contents()
    script = "slurm/svgd/my_svgd_gpu.sbatch"
    fit(page, f"Fit {script} to my cluster")
    shown = box_of(page, script).locator(":scope > div pre, :scope > details > div pre")
    kept = "[...document.querySelectorAll('article .code-file')].filter(box => box.querySelector('mark.fitted')).length"

    assert page.evaluate(kept) >= 2
    assert expected(CONFIG, script) in shown.all_text_contents()
    open_panel(page).get_by_role("button", name="Forget everything").click()
    page.wait_for_function("!document.querySelector('mark.fitted')")
    assert page.locator("article pre").all_text_contents() == before


@pytest.mark.parametrize(
    ("label", "value", "allowed"),
    [
        ("Partition", "batch; rm -rf /", "sinfo lists them"),
        ("Where it is", '~/a" b/envs/x', "a path; of conda, also a name"),
        ("Modules to load", "cuda $(x)", "in this order"),
    ],
)
def test_a_wrong_value_is_refused(open_page, label, value, allowed):
    """A value that a script cannot take is not kept; the browser says what is allowed."""
    page = open_page(PAGE)
    panel = open_panel(page)
    panel.get_by_label("Python comes from").select_option("conda")
    panel.get_by_label("Where it is").fill("~/miniforge3/envs/x")
    field = panel.get_by_label(label, exact=True)
    field.fill(value)
    panel.get_by_role("button", name="Fit the scripts").click()

    assert panel.is_visible()
    assert field.evaluate("field => field.matches(':invalid') && field === document.activeElement")
    assert field.get_attribute("title") == f"{label}: {allowed}"
    assert page.evaluate("localStorage.getItem('srunbook.cluster')") is None


@pytest.mark.parametrize("how", ["forbidden", "full"])
def test_storage_that_does_not_work_is_no_error(open_page, how):
    """Where the browser keeps nothing, the scripts of this page are fitted, the panel says so, and nothing fails."""
    page = open_page(PAGE)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
        if how == "forbidden"
        else "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }"
    )
    page.reload()
    errors.clear()  # the theme reads the storage unprotected
    panel = open_panel(page)
    fill(panel)
    panel.get_by_role("button", name="Fit the scripts").click()
    panel.get_by_text("This browser keeps nothing").wait_for()
    panel.get_by_role("button", name="Close").click()
    page.locator("mark.fitted").first.wait_for()

    assert copied(page, box_of(page)) == expected(CONFIG)
    assert not errors


def test_accessibility_of_the_panel(open_page, look, complaints):
    """Axe has no complaint about the panel with a problem in it, nor about a fitted script; nothing is too wide."""
    page = open_page(PAGE, **look)
    panel = open_panel(page)
    fill(panel)
    panel.get_by_label("Partition", exact=True).fill("a b")
    panel.get_by_role("button", name="Fit the scripts").click()
    assert complaints(page, ".fit-dialog") == []
    panel.get_by_label("Partition", exact=True).fill("batch")
    panel.get_by_role("button", name="Fit the scripts").click()
    page.locator("mark.fitted").first.wait_for()
    assert complaints(page, ".code-file") + complaints(page, ".content-icon-container") == []
