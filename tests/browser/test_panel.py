"""The panel "My cluster": what the reader fills in is in every job script that pages show, copy and download."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from srunbook import adapt, generate
from srunbook.script import ScriptError

ROOT = Path(__file__).resolve().parents[2]
PAGE = "guides/torchrun/several-nodes.html"
SCRIPT = "slurm/torchrun/ddp.sbatch"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}

CONFIG = {
    "partition": "batch",
    "account": None,
    "platform": "gpu",
    "gpus_per_node": "a100:4",
    "cpus_per_node": 64,
    "modules_to_load": ["cuda/12.4"],
    "conda_environment": "~/miniforge3/envs/torch-env",
    "network_interface": "ib0",
}
"""What the tests fill in, as a configuration."""


def expected(config, script=SCRIPT):
    """Return what `srunbook adapt` makes of a script."""
    site = adapt.site(generate.Layer("my cluster", config))
    return adapt.adapt((ROOT / script).read_bytes(), site).data.decode()


def open_panel(page):
    """Open the panel from the page's header."""
    page.get_by_role("button", name="My cluster").first.click()
    return page.get_by_role("dialog")


def fill(panel):
    """Fill in `CONFIG`."""
    panel.get_by_label("Partition", exact=True).fill("batch")
    panel.locator("[name=none-account]").check()
    panel.get_by_label("GPUs of a node").fill("4")
    panel.get_by_label("Type of the GPUs").fill("a100")
    panel.get_by_label("CPUs of a node").fill("64")
    panel.get_by_label("Python comes from").select_option("conda")
    panel.get_by_label("Where it is").fill(CONFIG["conda_environment"])
    panel.get_by_label("Modules to load").fill("cuda/12.4")
    panel.get_by_label("Network interface").fill("ib0")


def fit(page):
    """Fill in the panel and close it with its button."""
    panel = open_panel(page)
    fill(panel)
    panel.get_by_role("button", name="Fit the scripts").click()
    panel.wait_for(state="hidden")
    page.locator("mark.fitted").first.wait_for()


def box_of(page, script=SCRIPT):
    """Return the frame of a script."""
    return page.locator("article .code-file").filter(has=page.locator(".code-file-name", has_text=script)).first


def copied(page, box):
    """Return what the copy button of a script puts on the clipboard."""
    page.evaluate("navigator.clipboard.writeText('nothing yet')")
    box.hover()
    box.locator("button.copybtn").first.click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text !== 'nothing yet')")
    return page.evaluate("navigator.clipboard.readText()")


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
    assert panel.get_by_label("Type of the GPUs").input_value() == "a100"
    panel.get_by_role("button", name="Forget everything").click()
    page.wait_for_function("!document.querySelector('mark.fitted')")
    assert page.evaluate("localStorage.length === 0 || !localStorage.getItem('srunbook.cluster')")


def test_every_script_of_a_page(open_page):
    """Whole scripts, and those below a difference, come out as `srunbook adapt` makes them, and go back."""
    page = open_page("guides/torchrun/time-limit.html")
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    before = page.locator("article pre").all_text_contents()
    fit(page)
    script = "slurm/torchrun/requeue.sbatch"
    shown = box_of(page, script).locator(":scope > div pre, :scope > details > div pre")
    kept = "[...document.querySelectorAll('article .code-file')].filter(box => box.querySelector('mark.fitted')).length"

    assert page.evaluate(kept) >= 2
    assert expected(CONFIG, script) in shown.all_text_contents()
    open_panel(page).get_by_role("button", name="Forget everything").click()
    page.wait_for_function("!document.querySelector('mark.fitted')")
    assert page.locator("article pre").all_text_contents() == before


SHOWN = """[...document.querySelectorAll('article .code-file')].flatMap(box => {
    const name = box.querySelector(':scope > .code-file-caption .code-file-name')?.textContent ?? '';
    return [...box.querySelectorAll('pre')].filter(pre => pre.closest('.code-file') === box).map(pre => {
        const copy = pre.cloneNode(true);
        copy.querySelectorAll('del, .diff-gap').forEach(gone => gone.remove());
        return [name, copy.textContent];
    });
}).filter(([name]) => name.endsWith('.sbatch'))"""
"""The path and the text of each job script on a page, as the copy button takes it."""


@pytest.mark.full
def test_every_script_of_the_site(open_page, site, included):
    """On every page, every job script is what `srunbook adapt` makes of it."""
    page = open_page("index.html")
    page.evaluate("config => localStorage.setItem('srunbook.cluster', config)", json.dumps(CONFIG))
    scripts = {name: pages for name, pages in included.items() if name.endswith(".sbatch")}
    seen = set()
    for name in sorted({name for pages in scripts.values() for name in pages}):
        page.goto(f"{site}{name}.html")
        page.locator(".fit-bar").first.wait_for(state="attached")
        page.wait_for_load_state("networkidle")
        for path, text in page.evaluate(SHOWN):
            try:
                assert text == expected(CONFIG, path), (name, path)
            except ScriptError:
                assert text == (ROOT / path).read_text(), (name, path)
            seen.add(path)

    assert seen == set(scripts)


def test_export_and_import(open_page, tmp_path):
    """The file that the panel saves is the configuration, and opened again it fills in the same."""
    page = open_page(PAGE)
    panel = open_panel(page)
    fill(panel)
    path = downloaded(page, panel.get_by_role("button", name="Save as my_cluster.yaml"), tmp_path)

    assert path.name == "my_cluster.yaml"
    assert generate.read_config(path).values == CONFIG

    panel.get_by_role("button", name="Forget everything").click()
    path.write_text(path.read_text() + "nodes: 4  # of one job\n")
    panel.locator("[type=file]").set_input_files(path)
    panel.get_by_text("Left out, because each job decides it: nodes").wait_for()
    panel.get_by_role("button", name="Fit the scripts").click()
    page.locator("mark.fitted").first.wait_for()
    assert copied(page, box_of(page)) == expected(CONFIG)


WRONG_FILES = {
    "partition: [a": "my_cluster.yaml:2: not YAML",
    "- partition": "found a list; a configuration is keys and values",
    "name: x\n": "says nothing of a cluster",
    "apiVersion: v1\nkind: Pod\n": "unknown key 'apiVersion'",
    "partition: 'a b'\n": "partition is 'a b'. Partition, or several with commas",
    "x" * ((1 << 20) + 1): "too large",
}
"""Files that are broken, foreign or wrong, and what the panel says to each."""


def test_a_wrong_file_changes_nothing(open_page, tmp_path):
    """A broken or a foreign file is refused with what is wrong; the fields and what is kept stay."""
    page = open_page(PAGE)
    fit(page)
    kept = page.evaluate("localStorage.getItem('srunbook.cluster')")
    path = tmp_path / "my_cluster.yaml"
    panel = open_panel(page)
    for text, said in WRONG_FILES.items():
        path.write_text(text)
        panel.locator("[type=file]").set_input_files(path)
        panel.locator("#fit-problem").get_by_text(said).wait_for()

        assert panel.locator(".fit-status").inner_text() == "Nothing was changed."
        assert panel.get_by_label("Partition", exact=True).input_value() == "batch"
        assert page.evaluate("localStorage.getItem('srunbook.cluster')") == kept


def test_a_wrong_value_says_what_is_allowed(open_page):
    """Each wrong field says what it takes, with an example; nothing is kept until all are right."""
    page = open_page(PAGE)
    panel = open_panel(page)
    panel.get_by_label("Partition", exact=True).fill("batch; rm -rf /")
    panel.get_by_label("GPUs of a node").fill("four")
    panel.get_by_label("Network interface").fill("ib0 ib1")
    panel.get_by_role("button", name="Fit the scripts").click()
    partition = panel.locator("#fit-partition-problem").inner_text()

    assert panel.is_visible()
    assert 'Example: partition: "compute"' in partition
    assert "GPUs on each node: a number" in panel.locator("#fit-gpus-problem").inner_text()
    assert 'Example: network_interface: "ib0"' in panel.locator("#fit-network_interface-problem").inner_text()
    assert panel.get_by_label("Partition", exact=True).get_attribute("aria-invalid") == "true"
    assert page.evaluate("document.activeElement.name") == "partition"
    assert page.evaluate("localStorage.getItem('srunbook.cluster')") is None

    panel.get_by_label("Partition", exact=True).fill("batch")
    panel.get_by_label("Network interface").fill("")
    panel.get_by_label("GPUs of a node").fill("4")
    panel.get_by_label("CPUs of a node").fill("30")
    panel.get_by_role("button", name="Fit the scripts").click()
    assert "cannot share 30 CPUs evenly" in panel.locator("#fit-cpus-problem").inner_text()


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


def test_a_script_that_cannot_be_fitted_says_why(open_page):
    """A refused script stays the original, with the words of `srunbook adapt`."""
    page = open_page("guides/torchrun/several-nodes.html")
    panel = open_panel(page)
    panel.get_by_label("Python comes from").select_option("a container")
    panel.get_by_label("Where it is").fill("~/torch.sif")
    panel.get_by_role("button", name="Fit the scripts").click()
    bar = box_of(page).locator(".fit-bar")
    bar.wait_for()

    assert "the configuration has a container, and the script starts its programs without one" in bar.inner_text()
    assert copied(page, box_of(page)) == (ROOT / SCRIPT).read_text()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 360),
        pytest.param("light", 360, marks=pytest.mark.full),
        pytest.param("dark", 1280, marks=pytest.mark.full),
    ],
)
def test_accessibility_of_the_panel(open_page, scheme, width):
    """Axe has no complaint about the panel with a problem in it, nor about a fitted script; nothing is too wide."""
    page = open_page(PAGE, width=width, scheme=scheme)
    complaints = []

    def look(part):
        for violation in Axe().run(page, context=part, options=RULES).response["violations"]:
            complaints.append(f"{part}: {violation['id']}: {violation['nodes'][0]['html']}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    panel = open_panel(page)
    fill(panel)
    panel.get_by_label("Partition", exact=True).fill("a b")
    panel.get_by_role("button", name="Fit the scripts").click()
    look(".fit-dialog")
    panel.get_by_label("Partition", exact=True).fill("batch")
    panel.get_by_role("button", name="Fit the scripts").click()
    page.locator("mark.fitted").first.wait_for()
    page.locator(".fit-bar summary").first.click()
    look(".code-file")
    look(".content-icon-container")

    assert not complaints


@pytest.mark.parametrize("width", [360, 1280])
def test_the_button_moves_nothing(open_page, width):
    """Where the button of a script comes, the page has room for it already."""
    page = open_page("index.html", width=width)
    height = "document.querySelector('.hero .code-file-caption').getBoundingClientRect().height"
    page.locator(".hero .fit-open").wait_for()
    before = page.evaluate(height)
    page.evaluate("document.querySelector('.hero .fit-open').remove()")

    assert page.evaluate(height) == before


def test_the_panel_is_light(open_page):
    """A reader who has filled in nothing loads no more than the buttons."""
    page = open_page(PAGE)
    page.wait_for_load_state("networkidle")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    ours = {Path(url.partition("?")[0]).name for url in loaded if "/js/" in url}

    assert {"panel.js", "panel-store.js"} <= ours
    assert not {name for name in ours if name.startswith(("adapt", "fit", "panel-f", "panel-y"))}
    assert not [url for url in loaded if "js-yaml" in url or "/adapt/" in url]
