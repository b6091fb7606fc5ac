"""Rendered scripts: generated specifications, hostile ones among them, under bash, shellcheck and a stand-in for srun.

`--full` also takes 10,000 specifications and writes bench/results/generate.json.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest
from support.generated_jobs import FATAL, SEED, Capacity, Trial, generated

from srunbook import generate
from srunbook.generate import JobError, JobSpecification, Layer
from srunbook.generate._render import context
from srunbook.generate._schema import choices
from srunbook.generate._template import NOTE, Context, rendered, source
from srunbook.generate._variables import BASH_NAMES, LAUNCHER_NAMES, SCRIPT_NAMES
from srunbook.measurements import Configuration, Measurement, write_measurement

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench" / "results" / "generate.json"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Try 150 configurations."""
    return generated(tmp_path_factory.mktemp("jobs") / "scripts", 150, Capacity())


def shellcheck(scripts: list[Path]) -> list[str]:
    """Return what shellcheck finds, many scripts in one call."""
    found = []
    for start in range(0, len(scripts), 500):
        result = subprocess.run(
            [
                Path(sys.executable).with_name("shellcheck"),
                "--shell=bash",
                "--format=gcc",
                "--exclude=SC1090,SC1091",  # the environments that scripts activate exist on a site alone
                *scripts[start : start + 500],
            ],
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode in (0, 1), result.stderr
        found += result.stdout.splitlines()
    return found


def bash_n(scripts: list[Path]) -> list[str]:
    """Return what bash says to the syntax of scripts."""
    said = []
    for start in range(0, len(scripts), 500):
        part = scripts[start : start + 500]
        loop = 'for script in "$@"; do bash -n "$script" || echo "bash -n: $script"; done'
        result = subprocess.run(["bash", "-c", loop, "-", *part], capture_output=True, text=True, check=True)
        said += (result.stdout + result.stderr).splitlines()
    return said


def test_generated_scripts_are_clean(trial):
    """Every accepted specification gives a script that bash and shellcheck have nothing to say about."""
    scripts = [path for _, path in trial.accepted]

    assert len(scripts) >= 100
    assert len(trial.refused) >= 10
    assert bash_n(scripts) == []
    assert shellcheck(scripts) == []


def test_broken_script_is_found(tmp_path, trial):
    """A script with a syntax error, and one with an unquoted value, are seen."""
    text = trial.accepted[0][1].read_text(encoding="utf-8")
    broken, careless = tmp_path / "broken.sbatch", tmp_path / "careless.sbatch"
    broken.write_text(f"{text}if\n", encoding="utf-8")
    careless.write_text(f"{text}echo $1\n", encoding="utf-8")

    assert bash_n([broken])
    assert any("SC2086" in line for line in shellcheck([careless]))


def test_no_value_makes_a_line(trial):
    """A script has the lines of its template, whatever its texts: other texts in their place change no number of lines.

    Directives, too, are the same.
    """
    for one, path in trial.accepted:
        text = path.read_bytes().decode()
        harmless = one.model_copy(
            update={
                "script": "x.py",
                "name": one.job_name,
                "arguments": ["x"] * len(one.arguments),
                "env_vars": dict.fromkeys(one.env_vars, "x"),
                **({"virtual_environment": "/x"} if one.virtual_environment else {}),
                **({"container_image": "/x"} if one.container_image else {}),
                **({"conda_environment": "/x/envs/x"} if one.conda_environment else {}),
            }
        )
        lines, expected = without_note(text), without_note(generate.render(harmless, made_by="x"))

        assert len(lines) == len(expected)
        assert [line for line in lines if line.startswith("#SBATCH")] == [
            line for line in expected if line.startswith("#SBATCH")
        ]
        assert text.splitlines(keepends=True)[-1].endswith('"${PROGRAM[@]}" "$@"\n')


def test_a_value_that_makes_a_line_is_seen():
    """A line end that gets past the checks makes lines, so the comparison above can fail, and so can Slurm."""
    one = generate.specify(Layer("here", {"nodes": 1, "cpus_per_node": 1, "script": "a.py"})).specification
    wrong = one.model_copy(update={"partition": "a\n#SBATCH --nodes=9", "arguments": ["a\nb"]})  # checks nothing

    assert len(without_note(generate.render(wrong))) > len(without_note(generate.render(one))) + 2
    assert "#SBATCH --nodes=9" in generate.render(wrong).splitlines()


def without_note(text: str) -> list[str]:
    """Return the lines of a script, as bash, Slurm and an editor count them, without the note for shellcheck."""
    return [line for line in text.splitlines() if not line.startswith("# shellcheck disable=SC1003")]


@pytest.mark.parametrize("text", FATAL)
@pytest.mark.parametrize(
    "name",
    ["script", "name", "partition", "account", "qos", "constraint", "output", "signal", "time_limit", "memory_per_cpu",
     "virtual_environment", "container_image", "arguments", "modules_to_load", "env_vars", "variable", "gpus_per_node",
     "conda_environment", "network_interface"],
)  # fmt: skip
def test_no_field_takes_a_control_character(name, text):
    """No field takes a character that ends a line, or turns its direction."""
    values: dict[str, Any] = {"nodes": 2, "cpus_per_node": 8, "script": "train.py"}
    forms = {"arguments": [text], "modules_to_load": [text], "env_vars": {"A": text}, "variable": {text: "a"}}
    values["env_vars" if name == "variable" else name] = forms.get(name, text)

    with pytest.raises(JobError):
        generate.specify(Layer("here", values))


def test_surrogate_is_refused():
    """An argument that is no text, such as bytes of another encoding, is refused."""
    with pytest.raises(JobError, match="arguments"):
        generate.specify(Layer("here", {"nodes": 2, "cpus_per_node": 8, "script": "a.py", "arguments": ["a\udcff"]}))


STAND_INS = {
    "srun": 'while [[ "$1" == --* ]]; do shift; done\nexec "$@"',
    "scontrol": "echo 127.0.0.1",
    "module": "exit 0",
    "singularity": 'while [[ "$1" != python && "$1" != torchrun ]]; do shift; done\nexec "$@"',
    "python": 'printf "%s\\0" "$@" >arguments\nenv -0 >environment',
    "torchrun": 'printf "%s\\0" "$@" >arguments\nenv -0 >environment',
}
"""Stand-ins for what a cluster has: srun, which starts one task here; the program itself writes down what it got."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with stand-ins for Slurm's commands and for Python."""
    folder = tmp_path_factory.mktemp("place")
    for name, text in STAND_INS.items():
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
    return folder


ENVIRONMENT = {
    "BASH_FUNC_source%%": '() {  export SOURCED="$*"\n}',  # as bash passes a function on: no environments here
    "JAX_IMAGE": "jax.sif",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "x",
    "SLURM_JOB_NODELIST": "node1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_CPUS_PER_TASK": "8",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_LOCALID": "0",
}
"""What Slurm and the site set, beside HOME and PATH."""


def environment(place: Path) -> dict[str, str]:
    """Return the environment of the batch shell."""
    return {**ENVIRONMENT, "HOME": str(place), "PATH": f"{place / 'bin'}:/usr/bin:/bin"}


def received(place: Path, script: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Run a script as the batch shell would; return the arguments and the environment that the program got."""
    (place / "x_7.out").touch()
    result = subprocess.run(
        ["bash", script, *arguments],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, ""), script.read_text(encoding="utf-8") + result.stderr
    words = (place / "arguments").read_bytes().decode().split("\0")[:-1]
    variables = (place / "environment").read_bytes().decode().split("\0")[:-1]
    return words, dict(entry.split("=", 1) for entry in variables)


def expected(one: JobSpecification, there: dict[str, str]) -> dict[str, str]:
    """Return the environment that the program of a job ought to get, with eight CPUs, as task 0 of 1, on one node."""
    there = {**there, "PYTHONUNBUFFERED": "1"}
    conda, _, name = (one.conda_environment or "").rpartition("/envs/")
    if place := one.virtual_environment or conda:
        first, slash, rest = place.partition("/")
        known = {"~": there["HOME"], "$HOME": there["HOME"], "$JAX_IMAGE": there["JAX_IMAGE"]}
        there["SOURCED"] = f"{known.get(first, first)}{slash}{rest}/bin/activate {name if conda else ''}".rstrip()
    port = str(one.coordinator_port) if one.coordinator_port else None
    if one.framework == "jax":
        devices = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(one.devices_per_process or 8)}
        there |= devices if one.platform == "cpu" else {}
        there |= {"JAX_COORDINATOR_PORT": port} if port else {}
    else:
        there["OMP_NUM_THREADS"] = str(-(-8 // one.processes) if one.framework == "torchrun" else 8)
    if one.framework == "gloo":
        there |= {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    if one.framework in ("lightning", "gloo") and port:
        there["MASTER_PORT"] = port
    if one.network_interface:
        there |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), one.network_interface)
    return there | one.env_vars


def difference(place: Path, one: JobSpecification, path: Path, *more: str) -> str:
    """Run a script; say in what its program's arguments or environment are not exactly those of the job."""
    words, variables = received(place, path, *more)
    for name in ("PWD", "SHLVL", "_"):  # bash's own
        del variables[name]
    given = [one.script, *one.arguments, *more]
    before = words[: -len(given)]
    own = 5 + 2 * (one.signal is not None) if one.framework == "torchrun" else 0
    if words[-len(given) :] != given or len(before) != own or not all(word.startswith("--") for word in before):
        return f"{path.name}: arguments {words}, not {given}"
    wanted = expected(one, environment(place))
    if one.framework == "gloo" and not one.coordinator_port:  # the first that is free
        assert 25007 <= int(variables["MASTER_PORT"]) < 32000
        wanted["MASTER_PORT"] = variables["MASTER_PORT"]
    differing = {name for name in wanted.keys() | variables.keys() if wanted.get(name) != variables.get(name)}
    return f"{path.name}: other variables {sorted(differing)}" if differing else ""


def test_program_gets_exactly_what_was_given(place, trial):
    """Of every accepted job the program gets exactly the arguments and environment that were given; nothing else runs.

    Where the job names a variable of the script or the site, the job's value is the one.
    """
    wrong = [difference(place, one, path, "later", "$x y") for one, path in trial.accepted]

    assert [*filter(None, wrong)] == []
    assert not list(place.rglob("*owned*"))


def test_a_careless_script_is_seen(place, trial, tmp_path):
    """Without its quotes a script passes on something else, so the comparison above can fail."""
    one = generate.specify(
        Layer("here", {"nodes": 1, "cpus_per_node": 8, "script": "a.py", "arguments": ["a  b"]})
    ).specification
    path = tmp_path / "careless.sbatch"
    path.write_text(generate.render(one).replace("'a  b'", "a  b"), encoding="utf-8")

    assert received(place, path)[0] != ["a.py", "a  b"]
    assert "arguments" in difference(place, one, path)


@pytest.mark.parametrize(
    ("wrong", "right"), [("export A='$x'", 'export A="${x-}"'), ("export A='$x'", "export A='$x' B=1")]
)
def test_a_careless_environment_is_seen(place, tmp_path, wrong, right):
    """A variable that is expanded, and one too many, are seen."""
    one = generate.specify(
        Layer("here", {"nodes": 1, "cpus_per_node": 8, "script": "a.py", "env_vars": {"A": "$x"}})
    ).specification
    path = tmp_path / "careless.sbatch"
    path.write_text(generate.render(one), encoding="utf-8")
    before = difference(place, one, path)
    path.write_text(generate.render(one).replace(wrong, right), encoding="utf-8")

    assert (before, "variables" in difference(place, one, path)) == ("", True)


def test_every_field_is_drawn(trial):
    """Among the drawn jobs are some with each field set, and with each choice of those that have some."""
    for name, info in JobSpecification.model_fields.items():
        values = [getattr(one, name) for one, _ in trial.accepted]
        default = info.get_default(call_default_factory=True)

        assert sum(value != default for value in values) >= 5, name
        assert not choices(name) or set(choices(name)) <= set(values), name


@pytest.mark.parametrize("name", sorted(BASH_NAMES | SCRIPT_NAMES | LAUNCHER_NAMES | {"BASH_ENV", "SLURM_NTASKS"}))
def test_variables_with_a_meaning_are_refused(name):
    """A job must not set variables that the shell, the script, Slurm or a launcher sets."""
    with pytest.raises(JobError, match=f"the variable {name} cannot be set"):
        generate.specify(Layer("here", {"nodes": 1, "cpus_per_node": 1, "script": "a.py", "env_vars": {name: "1"}}))


def test_all_variables_that_bash_sets_are_known():
    """Each variable that a new bash has by itself is refused, as far as it has a value at all."""
    result = subprocess.run(
        ["env", "-i", "bash", "--norc", "-c", "compgen -v"], capture_output=True, text=True, check=True
    )
    left = {name for name in result.stdout.split() if not name.startswith("BASH")} - BASH_NAMES

    assert left <= {"COMP_WORDBREAKS", "HOSTTYPE", "MACHTYPE", "OSTYPE", "TERM"}  # of no use to a script


def test_script_names_are_those_of_the_template():
    """Each variable that the template sets and does not export is refused, and so can hide no variable of a job."""
    assert set(re.findall(r"^([A-Z_]+)=|mapfile -t ([A-Z]+)", source(), re.MULTILINE)) == {
        (name, "") if name != "HOSTS" else ("", name) for name in SCRIPT_NAMES
    }


def contexts(trial: Trial) -> list[Context]:
    """Return the values for the template of each accepted job."""
    return [context(one, "x") for one, _ in trial.accepted]


def told(template: str, **values: str | int | bool | None) -> list[tuple[str, str]]:
    """Render a template; return each line with its reason."""
    return [(line.text, line.reason) for line in rendered(template, values)]


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({"a": True, "b": "2"}, ["a", "a and b", "end"]),
        ({"a": 1, "b": 0}, ["a", "a without b", "end"]),
        ({"a": "", "b": "2"}, ["b alone", "end"]),
        ({"a": None, "b": False}, ["neither", "end"]),
    ],
)
def test_ifs_choose_lines(values, lines):
    """An if chooses by the value of its name, else the opposite, and one in another needs both."""
    template = (
        "{% if a %}\na\n{% if b %}\na and b\n{% else %}\na without b\n{% endif %}\n"
        "{% else %}\n{% if b %}\nb alone\n{% else %}\nneither\n{% endif %}\n{% endif %}\nend\n"
    )

    assert [text for text, _ in told(template, **values)] == lines


def test_a_note_explains_the_next_line():
    """A note's reason, with its values, belongs to the next line that is chosen, and to no other."""
    template = "{# always: because {{ a }} #}\nx{{ a }}\ny\n{% if b %}\n{# nodes: never #}\nz\n{% endif %}\nend\n"

    assert told(template, a=1, b=False) == [("x1", "because 1"), ("y", ""), ("end", "")]


def test_a_value_is_no_template():
    """Tags in a value are a text like any other, and each line of a value is told by its number."""
    lines = list(rendered("{# arguments: each #}\n  {{ a }}\n", {"a": "{{ b }}\n  {% if c %}"}))

    assert [(line.text, line.fields, line.reason, line.part) for line in lines] == [
        ("  {{ b }}", ("arguments",), "each", 0),
        ("  {% if c %}", ("arguments",), "each", 1),
    ]


@pytest.mark.parametrize("around", ["{}\n", "{{% if x %}}\n{}\n{{% endif %}}\n"], ids=["chosen", "not-chosen"])
@pytest.mark.parametrize(
    "line",
    ["{% for x in y %}", "{{ a.b }}", "{{ a | upper }}", "{%- if a %}", "x {% if a %}", "{# no reason #}", "{{a}}",
     "{% if a and b %}", "{% elif a %}"],
)  # fmt: skip
def test_more_than_the_language_is_refused(line, around):
    """Whatever else Jinja has is refused, in lines that are not chosen too."""
    with pytest.raises(ValueError, match="language"):
        told(around.format(line), a="1", b="1", x="", y="")


@pytest.mark.parametrize(
    ("template", "part"),
    [
        ("{{ b }}", "names 'b', which has no value"),
        ("{% if b %}", "names 'b', which has no value"),
        ("{# nodes: {{ b }} #}", "names 'b', which has no value"),
        ("{{ none }}", "shows 'none', which is None"),
        ("{{ yes }}", "shows 'yes', which is True"),
        ("{% if yes %}\nx", "an if without its endif"),
        ("{% endif %}", "'{% endif %}' without its if"),
        ("{% else %}", "'{% else %}' without its if"),
    ],
)
def test_a_wrong_template_is_an_error(template, part):
    """The template is strict: a name without a value never becomes an empty text, and each if has its end."""
    with pytest.raises(ValueError, match=re.escape(part)):
        told(template, a="1", none=None, yes=True)


def test_template_takes_every_value(trial):
    """The template uses each value that it is given: none is left over from another time."""
    used = {name for tag in re.findall(r"\{% if ([a-z_]+) %\}|\{\{ ([a-z_]+) \}\}", source()) for name in tag if name}

    assert used == contexts(trial)[0].keys()


def test_every_line_has_a_reason(trial):
    """Each line of a script has a reason, and fields that there are; comments and empty lines have none."""
    fields = {name for note in re.finditer(NOTE, source()) for name in note["fields"].split(", ")} - {"always"}
    without = {
        line.text
        for values in contexts(trial)
        for line in rendered(source(), values)
        if not line.reason and line.text and not re.match(r"# ", line.text)
    }

    assert without == set()
    assert fields == set(JobSpecification.model_fields) - {"profile", "cluster"}


def test_explanation_names_the_origins():
    """Each line says where its values came from: a file and its line, an option, a profile, the default."""
    layers = [
        generate.parse_config(
            "profile: small\nmodules_to_load:\n- gcc\n- python\nenv_vars:\n  A: x\n  B: y\n", "a.yaml"
        ),
        Layer("--script", {"script": "train.py"}),
        Layer("after --", {"arguments": ["--epochs", "3"]}),
        *generate.settings(["nodes=3"]),
    ]
    told = {line.text.rstrip(): dict(line.origins) for line in generate.explain(generate.specify(*layers))}

    assert told["#SBATCH --nodes=3"] == {"nodes": "--set nodes=3"}
    assert told["#SBATCH --time=00:30:00"] == {"time_limit": "profile small"}
    assert told["module load python"] == {"modules_to_load[1]": "a.yaml:4"}
    assert told["export B=y"] == {"env_vars.B": "a.yaml:7"}
    assert told["  train.py"] == {"script": "--script"}
    assert told["  3"] == {"arguments[1]": "after --"}
    assert told["set -eo pipefail"] == {}


def test_directives_come_first(trial):
    """All directives stand before the first command, where Slurm stops reading them."""
    for _, path in trial.accepted:
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next(place for place, line in enumerate(lines) if line and not line.startswith("#"))

        assert lines[0] == "#!/bin/bash"
        assert lines[first] == "set -eo pipefail"
        assert not any(line.startswith("#SBATCH") for line in lines[first:])


def test_log_needs_no_folder(trial):
    """Slurm's log is a file of the folder of submission: a folder that is missing cannot end the job in silence."""
    for one, path in trial.accepted:
        (output,) = re.findall(r"^#SBATCH --output=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)

        assert "/" not in output
        assert one.output.endswith(output)


def test_log_is_linked_into_its_folder(place, tmp_path):
    """The folder of the logs is made, and its link leads to the log."""
    one = generate.specify(
        Layer("here", {"nodes": 1, "cpus_per_node": 8, "script": "a.py", "output": "runs/svgd_%x-%j.out"})
    ).specification
    script = tmp_path / "job.sbatch"
    script.write_text(generate.render(one), encoding="utf-8")
    (place / "svgd_x-7.out").write_text("log", encoding="utf-8")
    received(place, script)

    assert (place / "runs" / "svgd_x-7.out").read_text(encoding="utf-8") == "log"


def test_too_large_a_script_is_refused():
    """A script that Slurm might refuse for its size is refused here, with the size."""
    arguments = ["'" * 4000] * 100
    one = generate.specify(
        Layer("here", {"nodes": 1, "cpus_per_node": 8, "script": "a.py", "arguments": arguments})
    ).specification

    with pytest.raises(JobError, match="bytes"):
        generate.render(one)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_thousand_specifications(tmp_path, place):
    """10,000 specifications, once: every accepted one is clean, and gives the program what was given."""
    trial = generated(tmp_path / "scripts", 10_000, Capacity())
    scripts = [path for _, path in trial.accepted]
    syntax, findings = bash_n(scripts), shellcheck(scripts)
    wrong = [*filter(None, (difference(place, one, path, "later", "$x y") for one, path in trial.accepted))]
    rows = []
    for framework in [*choices("framework"), "another"]:
        own = {path.name for one, path in trial.accepted if one.framework == framework}
        refused = sum(framework == (name if name in choices("framework") else "another") for name, _ in trial.refused)

        def among(lines: list[str], own: set[str] = own) -> list[float]:
            return [float(sum(bool(own & set(re.findall(r"\d{5}\.sbatch", line))) for line in lines))]

        counts = {
            "accepted": [float(len(own))],
            "refused": [float(refused)],
            "findings_of_bash": among(syntax),
            "findings_of_shellcheck": among(findings),
            "other_arguments_or_environment": among(wrong),
        }
        rows.append(Configuration(framework, {}, counts))
    node = "tests/unit/test_generate_scripts.py::test_ten_thousand_specifications"
    write_measurement(
        RESULT,
        Measurement.taken_now(
            f"python -m pytest {node} --full",
            rows,
            versions={
                "bash": program_version("bash"),
                "shellcheck": program_version(str(Path(sys.executable).with_name("shellcheck"))),
                "pydantic": pydantic.VERSION,
            },
            parameters={"specifications": 10_000, "seed": SEED},
        ),
    )

    assert (syntax, findings, wrong) == ([], [], [])
    assert not list(place.rglob("*owned*"))
    assert len(trial.refused) + len(scripts) == 10_000


def program_version(program: str) -> str:
    """Return the version of a program."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\d+\.\d+\.\d+", text)[0]
