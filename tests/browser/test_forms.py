"""The forms of the site: a job script that appears as its reader chooses, and the memory of a model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from click.testing import CliRunner

from srunbook.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = "start/get-your-script.html"
START = "srunbook generate --profile medium --framework torchrun --script train.py --set platform=gpu"
START += " --set gpus_per_node=4"


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
    """The script is what the shown command prints, after each choice; directives have reasons, which a click hides."""
    page = open_page(PAGE)
    assert command(page) == START
    assert script(page) == printed(START)[0]
    directives = page.locator(".builder-line:has(.directive)")
    assert directives.count() > 8
    assert directives.locator(".reason").count() == directives.count()
    assert page.get_by_text("what squeue shows").is_visible()
    page.get_by_label("Reasons").uncheck()
    assert not page.get_by_text("what squeue shows").is_visible()

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
    """Copy and download give the script, another button the command; another profile keeps what was changed."""
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

    choose(page, environment="conda_environment", profile="production")
    assert [page.locator(f"#builder-{key}").input_value() for key in ("nodes", "cpus_per_node")] == ["3", "32"]
    assert page.locator("#builder-environment").input_value() == "conda_environment"
    choose(page, environment="")
    assert "--set nodes=3" in command(page)
    assert "cpus_per_node" not in command(page)


WRONG = [
    ("partition", 'gpu"; touch owned', "without blanks, quotes", 'partition: "compute"'),
    ("script", "", "no program is named", "script: train.py"),
    ("container_image", "", "Apptainer image", 'container_image: "$JAX_IMAGE"'),
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
    page.get_by_role("button", name="Fit the scripts").click()
    page.wait_for_function("document.querySelector('#builder-partition').value === 'long'")
    assert all(f"{word}\n" in script(page) for word in ("--nodes=3", "--partition=long"))
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


def test_plain_page(open_page):
    """From a folder, or without JavaScript, the page shows a command and the script that it prints."""
    from_disk, plain = open_page(PAGE, disk=True), open_page(PAGE, java_script_enabled=False)

    assert "python3 -m http.server --bind localhost" in from_disk.locator(".from-disk").inner_text()
    for page in (from_disk, plain):
        assert page.locator(".script-builder pre").all_text_contents() == [f"$ {START}\n", printed(START)[0]]


def test_loaded_on_its_page_only(open_page, site):
    """Other pages load nothing of the form."""
    page = open_page(PAGE)

    def loaded(name):
        page.goto(site + name, wait_until="networkidle")
        urls = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
        return {Path(urlsplit(url).path).name for url in urls}

    assert {"builder.js", "builder.css", "job-script.js"} <= loaded(PAGE)
    assert not [name for name in loaded("start/first-run.html") if name.startswith(("builder", "job-"))]


def test_accessibility(open_page, look, complaints):
    """Axe finds nothing to complain about, with a warning, an error and all groups open; no window is too narrow."""
    page = open_page(PAGE, **look)
    form, output = page.locator(".builder-form").bounding_box(), page.locator(".builder-output").bounding_box()
    if look["width"] > 1000:
        assert output["x"] >= form["x"] + form["width"]
    else:
        assert output["y"] >= form["y"] + form["height"]
    page.evaluate("document.querySelector('.builder-form details').open = true")
    choose(page, framework="jax", platform="cpu", environment="container_image", container_image="a.sif", qos="a b")

    assert complaints(page) == []


MEMORY = "guides/does-not-fit/index.html"


def cells(page):
    """Return the figures that the form shows."""
    return page.locator(".memory-answer td").all_text_contents()


def test_memory_form(open_page, complaints):
    """The form about memory begins with the recorded command, answers each change, and says what is wrong."""
    plain = open_page(MEMORY, java_script_enabled=False).locator(".memory-calculator pre").all_text_contents()
    assert all(word in "\n".join(plain) for word in ("srunbook memory 7B --gpus 16", "112.00"))
    page = open_page(MEMORY)
    assert cells(page) == ["28.00", "28.00", "56.00", "112.00", "1.75", "1.75", "3.50", "7.00"]
    assert page.locator(".memory-answer code").text_content() == "srunbook memory 7B --gpus 16"

    page.locator("#memory-sharing").fill("8")
    page.locator("#memory-precision").select_option("bf16")
    assert cells(page)[-1] == "7.00"
    assert page.locator(".memory-answer code").text_content().endswith("--gpus 16 --sharing 8 --precision bf16")

    page.locator("#memory-sharing").fill("5")
    assert page.locator(".memory-problem").text_content() == "16 GPUs do not divide into groups of 5: choose a divisor"
    assert page.locator("#memory-sharing").get_attribute("aria-invalid") == "true"
    assert complaints(page) == []
