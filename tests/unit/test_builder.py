"""The builder page's JavaScript accepts, refuses and renders what `srunbook generate` does."""

from __future__ import annotations

import json
import random
import re
import shlex
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import node
from support.generated_jobs import Capacity, Chance

from srunbook import generate
from srunbook.cli import main

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "docs" / "_static" / "js"
SEED = 20261123
MADE_BY = "srunbook generate --config 'my cluster.yaml'"


@dataclass(frozen=True)
class Case:
    """What both engines say to the same values."""

    values: dict[str, Any]
    python: dict[str, Any]
    page: dict[str, Any]


def rendered(values: dict[str, Any], made_by: str = MADE_BY) -> dict[str, Any]:
    """Return what the library makes of values, in the form of the page's engine."""
    try:
        job = generate.specify(generate.Layer("here", values))
        text = generate.render(job.specification, made_by=made_by)
    except generate.JobError as error:
        return {"refused": str(error)}
    reasons = [line.reason for line in generate.explain(job, made_by=made_by)]
    return {"text": text, "reasons": reasons, "warning": generate.warning(job.specification)}


def asked(
    values: list[dict[str, Any]], rules: dict[str, Any] | None = None, *, typed: bool = False
) -> list[dict[str, Any]]:
    """Return what the page's engine makes of values; also of refused ones what it says to them as options, if typed."""
    cases = [{"values": one, "made_by": MADE_BY, "typed": typed} for one in values]
    given = {"modules": MODULES.as_uri(), "rules": rules or generate.rules(), "cases": cases}
    return node.call(ROOT / "tests" / "support" / "render_jobs.mjs", given)


def both(values: list[dict[str, Any]], rules: dict[str, Any] | None = None) -> list[Case]:
    """Give the same values to both engines."""
    return [Case(one, rendered(one), page) for one, page in zip(values, asked(values, rules), strict=True)]


def assigned(values: dict[str, Any]) -> dict[str, Any]:
    """Replace characters that Python's Unicode does not know: a newer one, as in a browser, may show them."""
    text = json.dumps(values, ensure_ascii=False)
    return json.loads("".join("x" if unicodedata.category(letter) == "Cn" else letter for letter in text))


def drawn(count: int) -> list[dict[str, Any]]:
    """Draw configurations, a third of them with a wrong value."""
    chance = Chance(Capacity(wrong=0.35), SEED)
    return [assigned(chance.configuration()) for _ in range(count)]


@pytest.fixture(scope="module")
def trials() -> list[Case]:
    """Return 300 drawn configurations and what came of them."""
    return both(drawn(300))


def differing(cases: list[Case]) -> list[Case]:
    """Return the cases in which the engines differ."""
    return [case for case in cases if case.python != case.page["here"]]


def run(command: str) -> Any:
    """Run a command as a shell would."""
    return CliRunner().invoke(main, shlex.split(command)[1:])


def test_drawn_jobs_are_the_same(trials):
    """Scripts are equal byte for byte, with their reasons and warnings, and refusals word for word."""
    assert [case for case in trials if "refused" in case.python]
    assert [case for case in trials if case.python.get("warning")]
    assert differing(trials) == []


def test_shown_command_makes_the_shown_script(trials):
    """The command that the page shows, run as a command, prints the page's script and the page's warning."""
    accepted = [case for case in trials if "text" in case.python]
    for case in accepted[:60]:
        result = run(case.page["command"])
        assert result.stdout == case.page["typed"]["text"]
        warning = case.page["typed"]["warning"]
        assert result.stderr == (f"srunbook generate: note: {warning}\n" if warning else "")

    assert len(accepted) >= 60


BASE = {"profile": "small", "script": "a.py"}
CONTRADICTING = {
    "no-type": {"gpus_per_node": "gpu:4", "platform": "gpu"},
    "gpus-on-cpu": {"gpus_per_node": 4},
    "no-gpus": {"platform": "gpu"},
    "gloo-on-gpu": {"framework": "gloo", "platform": "gpu", "gpus_per_node": "a100:4"},
    "memory_per_node-and-memory_per_cpu": {"memory_per_cpu": "2G", "memory_per_node": "8G"},
    "container_image-and-virtual_environment": {"container_image": "a.sif", "virtual_environment": "~/b"},
    "container_image-and-conda_environment": {"container_image": "a.sif", "conda_environment": "~/b/envs/c"},
    "conda_environment-and-virtual_environment": {"virtual_environment": "~/a", "conda_environment": "~/b/envs/c"},
    "two-interfaces": {"network_interface": "ib0", "env_vars": {"GLOO_SOCKET_IFNAME": "ib1"}},
    "uneven-cpus": {"processes_per_node": 3},
    "uneven-gpus": {"processes_per_node": 2, "platform": "gpu", "gpus_per_node": 3},
    "devices-elsewhere": {"devices_per_process": 2, "framework": "gloo"},
    "many-devices": {"devices_per_process": 9},
    "interactive-name": {"framework": "lightning", "script": "bash.py"},
    "batch-shell-signal": {"signal": "RB:USR1@60"},
    "older-torchrun": {"framework": "torchrun", "older_torchrun": True, "signal": "R:USR1@60"},
}
"""Values that break each rule about several fields."""


def test_every_contradiction():
    """Each rule about several fields is broken by some values, and both engines say the same to them."""
    cases = both([{**BASE, **values} for values in CONTRADICTING.values()])

    assert differing(cases) == []
    for case, name, rule in zip(cases, CONTRADICTING, generate.rules()["contradictions"], strict=True):
        assert name == rule["name"]
        assert re.sub(r"\{\w+\}", "", rule["text"])[-20:] in case.python["refused"], name


EDGES = [
    {},
    {**BASE, "arguments": ["x", 1, "a\nb", None]},
    {**BASE, "env_vars": {"PATH": "x", "HOME": "y"}},
    {**BASE, "env_vars": {"A B": "x", "B": 3, "C": "\x1b"}},
    {**BASE, "modules_to_load": [2023], "account": "abc@a100", "memory_per_node": 0, "time_limit": 30},
    {**BASE, "account": "es/x", "memory_per_node": "0", "time_limit": "0-02:40", "name": "a(b)"},
    *({**BASE, "output": name} for name in ("/a/%x-%j.out", "runs/%A_%a.out", "a/b/%j", "logs/é%j", "-%j", "x/%x.%j")),
    *(
        {**BASE, "platform": "gpu", "framework": framework, "gpus_per_node": count, "gpu_option": option}
        for framework in ("jax", "torchrun")
        for count in (4, "2080ti:4")
        for option in ("gpus-per-node", "gres", "gpus-per-task", "none")
    ),
    *(
        {**BASE, "framework": "torchrun", "signal": signal, "older_torchrun": older}
        for signal in ("USR1", "SIGTERM@60", "B:USR2@1", "R:HUP", "BR:INT")
        for older in (False, True)
    ),
    {**BASE, "virtual_environment": "${HOME}/a $b", "container_image": None},
    {**BASE, "nodes": "four", "qos": "a b", "account": "x" * 65, "time_limit": 3600, "signal": "USR1", "output": "-%j"},
    {**BASE, "nodes": " 4", "cpus_per_node": "16", "partition": "a" * 300, "framework": "torch run", "requeue": "yes"},
    {**BASE, "script": "~/a.py", "modules_to_load": ["a b"] * 30},
    {**BASE, "arguments": ["x\udcff"]},
    {**BASE, "script": "a.py\u200b", "name": "\u0430b\uff21"},
    {**BASE, "script": "a:12: b\n", "qos": "'", "account": "'\"", "name": "\\", "constraint": "a\u2028"},
    {**BASE, "arguments": ["x" * 4096], "env_vars": {"A": "'", "B": "\N{GRINNING FACE}"}},
    {**BASE, "cluster": "raven", "partition": None, "constraint": None, "platform": "cpu", "gpus_per_node": None},
    {**BASE, "profile": "medium", "devices_per_process": None},
    {**BASE, "nodes": 10_000, "cpus_per_node": 1, "processes_per_node": 1},
    *({**BASE, "profile": profile, "cluster": site} for profile in generate.PROFILES for site in ("lumi", "mila")),
]
"""Values at the limits, and what people type."""


def test_edges():
    """Both engines say the same to values at the limits and to what people type."""
    assert differing(both(EDGES)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": 'gpu"; touch owned; "'},
        {"account": "$(touch owned)"},
        {"virtual_environment": "~/env\n#SBATCH --nodes=9"},
        {"env_vars": {"A": "\x1b[2J"}},
        {"env_vars": {"A=B": "x", "LD PRELOAD": "y"}},
        {"modules_to_load": ["a b"]},
        {"nodes": "4.5", "cpus_per_node": "-1"},
        {"time_limit": "2 hours"},
        {"signal": "FOO@9", "qos": "x y"},
        {"arguments": ["a\nb"]},
        {"script": "my program.py "},
    ],
)
def test_command_refuses_in_the_same_words(changes):
    """What the page says to a value that a script cannot hold is what the command says to the options."""
    (page,) = asked([{**BASE, **changes}], typed=True)
    result = run(page["command"])

    assert result.exit_code == 2
    assert page["typed"]["refused"].splitlines() == [
        line.removeprefix("srunbook generate: ") for line in result.stderr.splitlines()
    ]


def words_of(line: str) -> list[str] | None:
    """Split a line as a shell does; return None if that fails."""
    try:
        return shlex.split(line)
    except ValueError:
        return None


def test_arguments_are_split_as_by_a_shell():
    """The page reads the line of arguments as Python's shlex does: spaces, quotes, backslashes, quotes left open."""
    chance = random.Random(SEED)
    lines = ["".join(chance.choices("ab '\"\\\t$é", k=chance.randint(0, 12))) for _ in range(2000)]
    call = {"module": f"{MODULES.as_uri()}/job-command.js", "name": "splitWords", "calls": [[line] for line in lines]}
    found = node.call(ROOT / "tests" / "support" / "call_function.mjs", call)

    assert dict(zip(lines, found, strict=True)) == {line: words_of(line) for line in lines}
    assert None in found


def test_changed_template_is_found(trials):
    """A template that differs in one word differs in each script."""
    rules = generate.rules()
    template = rules["template"].replace("--open-mode=append", "--open-mode=truncate")
    accepted = [case.values for case in trials if "text" in case.python][:20]

    assert len(differing(both(accepted, {**rules, "template": template}))) == len(accepted)


def test_changed_rule_is_found():
    """A rule whose text or order differs is noticed."""
    rules = generate.rules()
    texts = [{**rule, "text": rule["text"].replace("cannot", "can not")} for rule in rules["contradictions"]]
    values = [{**BASE, **CONTRADICTING["memory_per_node-and-memory_per_cpu"]}, {**BASE, **CONTRADICTING["uneven-cpus"]}]

    assert len(differing(both(values, {**rules, "contradictions": texts}))) == len(values)


@pytest.mark.full
def test_many_drawn_jobs_are_the_same():
    """The same holds for 10,000 drawn configurations, and the commands of all that are accepted."""
    cases = both(drawn(10_000))

    assert differing(cases) == []
    for case in cases:
        if "text" in case.python:
            assert run(case.page["command"]).stdout == case.page["typed"]["text"]
