"""The page on which a job script appears as its reader chooses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner

from srunbook.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = "start/get-your-script.html"
START = "srunbook generate --profile medium --framework torchrun --script train.py --set platform=gpu"
START += " --set gpus_per_node=4"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], "resultTypes": ["violations"]}


def printed(command):
    """Return what a command prints, and says."""
    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def script(page):
    """Return the script that a page shows, without the reasons."""
    return "".join(f"{line}\n" for line in page.locator(".builder-line code").all_text_contents())


def command(page):
    """Return the command that a page shows."""
    return page.locator(".builder-command code").text_content()


def choose(page, **fields):
    """Choose words and type texts."""
    for key, text in fields.items():
        control = page.locator(f"#builder-{key}")
        if control.evaluate("control => control.tagName") == "SELECT":
            control.select_option(text)
        else:
            control.fill(text)


def problem(page, key):
    """Return what is said beside a field."""
    return page.locator(f"#builder-{key}-problem").text_content()


def test_script_follows_choices(open_page):
    """The script is what the shown command prints: at first, and after each of several choices."""
    page = open_page(PAGE)
    assert command(page) == START
    assert script(page) == printed(START)[0]

    page.locator("summary", has_text="More").click()
    for changes in (
        {
            "nodes": "2",
            "gpus_per_node": "a100:8",
            "time_limit": "1-00:00:00",
            "arguments": "--name 'my run' --epochs 3",
        },
        {"environment": "conda_environment", "conda_environment": "~/miniforge3/envs/my-env", "partition": "gpu,long"},
        {"framework": "jax", "platform": "cpu", "requeue": "true", "signal": "USR1@120", "modules_to_load": "gcc/13 a"},
        {"framework": "gloo", "processes_per_node": "4", "memory": "memory_per_node", "memory_per_node": "60G"},
        {
            "cluster": "raven",
            "framework": "lightning",
            "env_vars": "A=it's\nB=$HOME",
            "exclusive": "false",
            "requeue": "false",
        },
    ):
        before = script(page)
        choose(page, **changes)
        assert script(page) == printed(command(page))[0] != before

    assert all(word in script(page) for word in ("--mem=60G", "my-env", "gpu,long", "--no-requeue", "--epochs"))


def test_each_line_has_its_reason(open_page):
    """A reason stands above each directive; one click hides all of them."""
    page = open_page(PAGE)
    directives = page.locator(".builder-line:has(.directive)")

    assert directives.count() > 8
    assert directives.locator(".reason").count() == directives.count()
    assert page.get_by_text("what squeue shows").is_visible()
    page.get_by_label("Reasons").uncheck()
    assert not page.get_by_text("what squeue shows").is_visible()


def test_warning_about_open_files(open_page):
    """The page warns of too many open files in the command's words, and no longer once the advice is taken."""
    page = open_page(PAGE)
    warning = page.locator(".builder-warning")
    assert not warning.is_visible()
    choose(page, platform="cpu", framework="jax")

    said = printed(command(page))[1].removeprefix("srunbook generate: note: ").strip()
    assert warning.text_content().startswith(f"Note: {said.replace('`', '')}.")
    warning.get_by_role("button", name="Take 8 devices").click()
    assert not warning.is_visible()
    assert "--set devices_per_process=8" in command(page)
    assert script(page) == printed(command(page))[0]


def test_copy_and_download(open_page):
    """Copy and download give the script, and the other button copies the command."""
    page = open_page(PAGE)
    choose(page, nodes="3")
    text = printed(command(page))[0]

    page.get_by_role("button", name="Copy", exact=True).click()
    page.wait_for_function("document.querySelector('.builder-status').textContent === 'Copied.'")
    assert page.evaluate("navigator.clipboard.readText()") == text
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "job.sbatch"
    assert Path(download.value.path()).read_bytes() == text.encode()
    page.get_by_role("button", name="Copy the command").click()
    page.wait_for_function("text => navigator.clipboard.readText().then(found => found === text)", arg=command(page))


WRONG = [
    ("partition", 'gpu"; touch owned', "without blanks, quotes", 'partition: "compute"'),
    ("nodes", "two", "Number of nodes, 1 to 10000", "nodes: 4"),
    ("time_limit", "2 hours", "hours:minutes:seconds", 'time_limit: "02:00:00"'),
    ("script", "", "no program is named", "script: train.py"),
    ("arguments", "--name 'my run", "is not closed", "--name 'my run'"),
    ("container_image", "", "Apptainer image", 'container_image: "$JAX_IMAGE"'),
    ("env_vars", "OMP", "Write NAME=VALUE", "OMP_NUM_THREADS=8"),
    ("env_vars", "PATH=/tmp", "replaces all of it", "PATH"),
    ("processes_per_node", "3", "cannot share 16 CPUs evenly", "cpus_per_node: 15"),
]


def test_value_that_is_not_allowed(open_page):
    """The field says what is allowed, with an example, and no script is handed out until it is right."""
    page = open_page(PAGE)
    page.locator("summary", has_text="More").click()
    disabled = page.locator(".builder-output button:disabled")
    choose(page, environment="container_image", container_image="~/a.sif")
    for key, text, allowed, example in WRONG:
        right = page.locator(f"#builder-{key}").input_value()
        choose(page, **{key: text})

        assert allowed in problem(page, key)
        assert example in problem(page, key)
        assert page.locator(f"#builder-{key}").get_attribute("aria-invalid") == "true"
        assert disabled.count() == 3
        choose(page, **{key: right})
        assert page.locator("[aria-invalid]").count() == 0
        assert disabled.count() == 0


def test_profile_keeps_what_was_changed(open_page):
    """Another profile changes the fields that it gave, and no field that the reader changed."""
    page = open_page(PAGE)
    choose(page, nodes="3", environment="conda_environment", profile="production")

    assert [page.locator(f"#builder-{key}").input_value() for key in ("nodes", "cpus_per_node")] == ["3", "32"]
    assert page.locator("#builder-environment").input_value() == "conda_environment"
    choose(page, environment="")
    assert "--set nodes=3" in command(page)
    assert "cpus_per_node" not in command(page)


def test_values_from_elsewhere(open_page):
    """An event fills in values, such as those of the reader's cluster."""
    page = open_page(PAGE)
    page.evaluate(
        "detail => document.querySelector('.script-builder').dispatchEvent(new CustomEvent('fill', { detail }))",
        {"partition": "gpu", "conda_environment": "~/c/envs/e", "gpus_per_node": "h100:4", "env_vars": {"A": "b"}},
    )

    assert page.locator("#builder-environment").input_value() == "conda_environment"
    assert script(page) == printed(command(page))[0]
    assert all(f"{word}\n" in script(page) for word in ("--partition=gpu", "--gres=gpu:h100:4", "export A=b"))


def test_begins_with_the_panel(open_page):
    """What the reader has said of the cluster is filled in, also while the page is open, and other fields stay."""
    page = open_page(PAGE)
    note = page.get_by_text("Your cluster is filled in")
    assert not note.is_visible()
    config = {"partition": "batch", "account": None, "platform": "gpu", "gpus_per_node": "a100:8", "cpus_per_node": 64}
    page.evaluate("text => localStorage.setItem('srunbook.cluster', text)", json.dumps(config))
    page.reload()

    assert note.is_visible()
    assert all(f"{word}\n" in script(page) for word in ("--partition=batch", "--gres=gpu:a100:8"))
    assert script(page) == printed(command(page))[0]
    choose(page, framework="gloo", nodes="3")
    page.get_by_role("button", name="My cluster").first.click()
    page.get_by_role("dialog").get_by_label("Partition", exact=True).fill("long")
    page.get_by_role("dialog").get_by_label("Network interface").fill("ib0")
    page.get_by_role("button", name="Fit the scripts").click()
    page.wait_for_function("document.querySelector('#builder-partition').value === 'long'")
    assert all(f"{word}\n" in script(page) for word in ("--nodes=3", "--partition=long", "GLOO_SOCKET_IFNAME=ib0"))
    assert script(page) == printed(command(page))[0]


def test_storage_that_is_forbidden_or_broken(open_page):
    """Where the browser forbids its storage, or holds what no panel wrote, the form works as for anybody."""
    page = open_page(PAGE)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    for kept in ("{", '[1, "a"]', '"x"'):
        page.evaluate("text => localStorage.setItem('srunbook.cluster', text)", kept)
        page.reload()
        assert command(page) == START, kept
    page.evaluate("""localStorage.setItem('srunbook.cluster', '{"partition": "a b", "qos": {}, "new": [1]}')""")
    page.reload()
    assert "partition is 'a b'" in problem(page, "partition")
    assert not errors
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError'); }})"
    )
    page.reload()
    choose(page, nodes="3")
    assert script(page) == printed(command(page))[0]


def test_from_a_disk(browser):
    """A site that somebody opens from a folder shows the plain script, and says what the form needs."""
    context = browser.new_context()
    page = context.new_page()
    page.goto((ROOT / "build" / "site" / PAGE).as_uri())
    note, shown = page.locator(".from-disk").inner_text(), page.locator(".script-builder pre").all_text_contents()
    context.close()

    assert "python3 -m http.server" in note
    assert shown == [f"$ {START}\n", printed(START)[0]]


def test_without_javascript(browser, site):
    """Without JavaScript the page shows a command and the script that it prints."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site + PAGE)
    shown = page.locator(".script-builder pre").all_text_contents()
    context.close()

    assert shown == [f"$ {START}\n", printed(START)[0]]


def test_loaded_on_its_page_only(open_page, site):
    """Other pages load nothing of the form."""
    page = open_page(PAGE)

    def loaded(name):
        page.goto(site + name, wait_until="networkidle")
        urls = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
        return {Path(urlsplit(url).path).name for url in urls}

    assert {"builder.js", "builder.css", "job-script.js"} <= loaded(PAGE)
    assert not [name for name in loaded("start/first-run.html") if name.startswith(("builder", "job-"))]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1400, "light"),
        (360, "dark"),
        pytest.param(1400, "dark", marks=pytest.mark.full),
        pytest.param(360, "light", marks=pytest.mark.full),
    ],
)
def test_accessibility(open_page, width, scheme):
    """Axe finds nothing to complain about, with a warning, an error and all groups open; no window is too narrow."""
    page = open_page(PAGE, width=width, scheme=scheme)
    form, output = page.locator(".builder-form").bounding_box(), page.locator(".builder-output").bounding_box()
    assert (output["x"] >= form["x"] + form["width"]) if width > 1000 else (output["y"] >= form["y"] + form["height"])
    page.evaluate("document.querySelector('.builder-form details').open = true")
    choose(page, framework="jax", platform="cpu", environment="container_image", container_image="a.sif", qos="a b")

    found = Axe().run(page, options=RULES).response["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
