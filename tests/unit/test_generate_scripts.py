"""Rendered scripts: golden files for each profile and framework, and drawn specifications under bash and shellcheck."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.generated_jobs import Capacity, generated
from support.kept import kept_in_step

from srunbook import generate
from srunbook.cli import main
from srunbook.generate import JobSpecification, Layer, ResolvedJob
from srunbook.generate.specification import TAKEN, choices

READY = sorted((Path(__file__).resolve().parents[2] / "examples" / "ready_scripts").glob("*.sbatch"))


def script(**values) -> str:
    """Render the script of a job on one node."""
    layer = Layer("here", {"nodes": 1, "cpus_per_node": 8, "script": "a.py", **values})
    return generate.render(generate.specify(layer).specification)


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_ready_script(path, pytestconfig):
    """A ready script of the site is what the command in its third line prints."""
    command = path.read_text(encoding="utf-8").splitlines()[2].removeprefix("# Made by: ")
    result = CliRunner().invoke(main, shlex.split(command)[1:])

    assert result.exit_code == 0, result.stderr
    kept_in_step(path, result.stdout, pytestconfig.getoption("--record"), __file__)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[JobSpecification, Path]]:
    """Try 150 configurations; return those that are accepted, with their scripts."""
    return generated(tmp_path_factory.mktemp("jobs") / "scripts", 150, Capacity())


def shellcheck(scripts: list[Path]) -> str:
    """Return what shellcheck finds."""
    command = [Path(sys.executable).with_name("shellcheck"), "--shell=bash", "--format=gcc"]
    # The environments that scripts activate exist on a site alone, and values are meant as they are.
    command.append("--exclude=SC1090,SC1091,SC1003,SC1010,SC1097,SC1111,SC1112,SC2016,SC2054,SC2088,SC2191")
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    result = subprocess.run([*command, *scripts], env=environ, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 1), result.stderr
    return result.stdout


def test_generated_scripts_are_clean(accepted):
    """Every accepted specification gives a script that shellcheck finds nothing in."""
    scripts = [path for _, path in accepted]

    assert 100 <= len(scripts) < 150
    assert shellcheck(scripts) == ""


STAND_INS = {
    "srun": 'while [[ "$1" == --* ]]; do shift; done\nexec "$@"',
    "scontrol": "echo 127.0.0.1",
    "module": "exit 0",
    "pixi": 'printf "export SOURCED=%q" "${!#}"',
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
    command = ["bash", script, *arguments]
    result = subprocess.run(command, cwd=place, env=environment(place), capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, ""), script.read_text(encoding="utf-8") + result.stderr
    words = (place / "arguments").read_bytes().decode().split("\0")[:-1]
    variables = (place / "environment").read_bytes().decode().split("\0")[:-1]
    return words, dict(entry.split("=", 1) for entry in variables)


def expected(one: JobSpecification, there: dict[str, str]) -> dict[str, str]:
    """Return the environment that the program of a job ought to get, with eight CPUs, as task 0 of 1, on one node."""
    there = {**there, "PYTHONUNBUFFERED": "1"}
    there |= {"SETUP": "a  $b"} if "export SETUP='a  $b'" in one.setup else {}
    conda, _, name = (one.conda_environment or "").rpartition("/envs/")
    if place := one.virtual_environment or conda or one.pixi_manifest:
        first, slash, rest = place.partition("/")
        known = {"~": there["HOME"], "$HOME": there["HOME"], "$JAX_IMAGE": there["JAX_IMAGE"]}
        path = f"{known.get(first, first)}{slash}{rest}"
        activation = f"{path}/bin/activate {name if conda else ''}".rstrip()
        there["SOURCED"] = f"--manifest-path={path}" if one.pixi_manifest else activation
    port = str(one.coordinator_port) if one.coordinator_port else None
    if one.framework == "jax":
        devices = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(one.devices_per_process or 8)}
        there |= {} if one.gpus else devices
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
    own = 5 + 2 * (one.signal is not None and not one.older_torchrun) if one.framework == "torchrun" else 0
    if words[-len(given) :] != given or len(before) != own or not all(word.startswith("--") for word in before):
        return f"{path.name}: arguments {words}, not {given}"
    wanted = expected(one, environment(place))
    if one.framework == "gloo" and not one.coordinator_port:  # the first that is free
        assert 25007 <= int(variables["MASTER_PORT"]) < 32000
        wanted["MASTER_PORT"] = variables["MASTER_PORT"]
    differing = {name for name in wanted.keys() | variables.keys() if wanted.get(name) != variables.get(name)}
    return f"{path.name}: other variables {sorted(differing)}" if differing else ""


def test_program_gets_exactly_what_was_given(place, accepted):
    """Of every accepted job the program gets exactly the arguments and environment that were given; nothing else runs.

    Where the job names a variable of the script or the site, the job's value is the one.
    """
    wrong = [difference(place, one, path, "later", "$x y") for one, path in accepted]

    assert [*filter(None, wrong)] == []
    assert not list(place.rglob("*owned*"))


def test_a_careless_script_is_seen(place, tmp_path):
    """Without its quotes a script passes on something else, and shellcheck sees it: the checks above can fail."""
    path = tmp_path / "careless.sbatch"
    text = script(arguments=["a  b"]).replace("'a  b'", "a  b")
    path.write_text(f"{text}echo $HOME\n", encoding="utf-8")

    assert received(place, path)[0] != ["a.py", "a  b"]
    assert "SC2086" in shellcheck([path])


@pytest.mark.parametrize(("distribution", "status"), [("arbitrary", 1), ("block:cyclic", 0), (None, 0)])
def test_gloo_needs_rank_0_on_the_first_node(place, tmp_path, distribution, status):
    """Under --distribution=arbitrary rank 0 may be elsewhere, so the script ends at once and says why."""
    path = tmp_path / "gloo.sbatch"
    path.write_text(script(framework="gloo"), encoding="utf-8")
    (place / "a_7.out").touch()
    environ = {**environment(place), **({"SLURM_DISTRIBUTION": distribution} if distribution else {})}
    result = subprocess.run(["bash", path], cwd=place, env=environ, capture_output=True, text=True, check=False)

    assert result.returncode == status
    assert ("no --distribution=arbitrary" in result.stderr) == bool(status)


def test_every_field_is_drawn(accepted):
    """Among the drawn jobs are some with each field set, and with each choice of those that have some."""
    for name, info in JobSpecification.model_fields.items():
        values = [getattr(one, name) for one, _ in accepted]
        default = info.get_default(call_default_factory=True)

        assert sum(value != default for value in values) >= 5, name
        assert not choices(name) or set(choices(name)) <= set(values), name


def test_names_of_the_script_are_taken():
    """Each variable that the template sets and does not export cannot be set by a job."""
    source = Path(generate.__file__).with_name("job.sbatch.template").read_text(encoding="utf-8")
    names = re.findall(r"^(?:([A-Z_]+)=|mapfile -t ([A-Z]+))", source, re.MULTILINE)

    assert {"".join(name) for name in names} == {name for name, why in TAKEN.items() if "the script" in why}


def test_every_line_has_a_reason(accepted):
    """The explained lines are those of the script without comments, and they name every field."""
    fields = set()
    for job, path in accepted:
        lines = generate.explain(ResolvedJob(job, {}))
        fields |= {re.split(r"[.[]", name)[0] for line in lines for name, _ in line.origins}
        script = path.read_bytes().decode().split("\n")

        assert [line.text for line in lines] == [
            line for line in script if line not in ("", ")") and (not line.startswith("# ") or line == "#!/bin/bash")
        ]
    assert fields == set(JobSpecification.model_fields) - {"profile", "cluster"}


def test_explanation_names_the_origins(tmp_path):
    """Each line says where its values came from: a file and its line, an option, a profile, the default."""
    config = tmp_path / "a.yaml"
    config.write_text(
        "profile: small\nmodules_to_load:\n- gcc\n- python\nenv_vars:\n  A: x\n  B: y\n", encoding="utf-8"
    )
    layers = [
        generate.read_config(config),
        Layer("--script", {"script": "train.py"}),
        Layer("after --", {"arguments": ["--epochs", "3"]}),
        *generate.settings(["nodes=3"]),
    ]
    told = {line.text.rstrip(): dict(line.origins) for line in generate.explain(generate.specify(*layers))}

    assert told["#SBATCH --nodes=3"] == {"nodes": "--set nodes=3"}
    assert told["#SBATCH --time=00:30:00"] == {"time_limit": "profile small"}
    assert told["module load python"] == {"modules_to_load[1]": f"{config}:4"}
    assert told["export B=y"] == {"env_vars.B": f"{config}:7"}
    assert told["  train.py"] == {"script": "--script"}
    assert told["  3"] == {"arguments[1]": "after --"}
    assert told["set -eo pipefail"] == {}
