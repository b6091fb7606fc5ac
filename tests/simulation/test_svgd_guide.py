"""The programs, scripts and pages of the SVGD guide.

`pytest tests/simulation/test_svgd_guide.py --record` writes the recordings of the programs anew.
"""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.reader import Reader

from recordings import Recording
from recordings.checking import check
from recordings.comparing import Mask
from recordings.library_lines import without_greetings
from srunbook import simulate
from srunbook.cli import main

pytest.importorskip("optax")


pytestmark = pytest.mark.usefixtures("compiled_once")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "svgd"
SCRIPTS = ROOT / "slurm" / "svgd"
PAGES = ROOT / "docs" / "guides" / "svgd"

MASKS = (
    Mask(r"direction \S+, bandwidth \S+, .*", "direction <n>, bandwidth <n>, <t>", "rounding, and times"),
    Mask(r"(rate|mutation) \S+ \+- \S+", r"\1 <n> +- <n>", "processors round in different ways"),
    Mask(r"(fast_math=true .* is) \S+", r"\1 <n>", "it depends on what the processor adds at once"),
    Mask(r" +\d+\.\d+ (s|ms)\b", r" <t> \1", "how long something took"),
)


@dataclass(frozen=True)
class Case:
    """A program of the guide.

    Args:
        name: Its file.
        command: Which of the commands of its docstring, from 0.
        essential: Lines that must be the same at every run.
        beside: Files of its folder that it needs.
        masks: What may vary besides `MASKS`.
    """

    name: str
    command: int
    essential: str
    beside: tuple[str, ...] = ()
    masks: tuple[Mask, ...] = ()


NUMBERS = (
    Mask(r"(?<!jax-)\b[+-]?\d+\.\d+", "<n>", "processors round in different ways; other asserts look at the values"),
)

CASES = [
    Case("coalescent_posterior.py", 1, "", ("slurm_multinode_example.py",), NUMBERS),
    Case("device_map.py", 1, "", masks=NUMBERS),
    Case("logistic_regression.py", 1, "", masks=NUMBERS),
    Case("my_svgd.py", 1, r"rank|devices|rate"),
    Case("simple_multinode_example.py", 1, r"Process|rate"),
    Case("slurm_multinode_example.py", 1, r"^(\[\d\] )?rank \d|particles on|step|rate|mutation"),
    Case("profile_first_iteration.py", 1, r"first|again|meeting"),
    Case("count_code.py", 0, r"lines", ("my_svgd.py", "legacy_multinode.py")),
    Case("xla_flags.py", 0, r"devices"),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recording]:
    """Save a program of the guide and start it as its docstring says, once for all tests."""

    @functools.cache
    def run(name: str) -> Recording:
        (case,) = (case for case in CASES if case.name == name)
        reader = Reader(tmp_path_factory.mktemp("saved"), compare=check)
        command = reader.commands(EXAMPLES / name)[case.command]
        return reader.run(EXAMPLES / name, command, [EXAMPLES / other for other in case.beside])

    return run


DRAWN = ("coalescent_posterior.py",)
"""What a driver of the gallery runs on two processes in each build of the site."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.full if case.name in DRAWN else ()) for case in CASES],
    ids=lambda case: case.name,
)
def test_program_prints_what_was_recorded(case: Case, ran: Callable[[str], Recording], reader: Reader) -> None:
    """A program that somebody saves and starts as its docstring says prints what the page shows."""
    program = EXAMPLES / case.name
    run = ran(case.name)

    assert run.exit_code == 0, run.text
    reader.compare(program, run, lambda line: re.search(case.essential, line) is not None, (*MASKS, *case.masks))


# The answers ---------------------------------------------------------------------------------------------------------


def answer(text: str, name: str = "rate") -> tuple[float, float]:
    """Return the mean and standard deviation that a program prints."""
    ((mean, deviation),) = re.findall(rf"^(?:\[0\] )?{name} (\S+) \+- (\S+)", text, re.MULTILINE)
    return float(mean), float(deviation)


def test_posterior_is_that_of_the_grid(ran: Callable[[str], Recording]) -> None:
    """Mean and standard deviation of the particles of my_svgd.py are within 5 % of those that a grid gives."""
    exact = answer(ran("simple_multinode_example.py").text)
    particles = answer(ran("my_svgd.py").text)

    assert particles == pytest.approx(exact, rel=0.05)
    assert exact[0] == pytest.approx(2.0, abs=4 * exact[1])


@pytest.mark.full
def test_exact_posterior_of_two_rates(ran: Callable[[str], Recording]) -> None:
    """Means and deviations of the particles of coalescent_posterior.py are near those of the exact posterior."""
    shares = [float(share) for share in re.findall(r"exact .*  (\S+) %", ran("coalescent_posterior.py").text)]

    assert len(shares) == 4
    assert max(map(abs, shares)) < 5


def test_by_hand_is_the_same(ran: Callable[[str], Recording]) -> None:
    """The program by hand and the short one say the same of devices, and come to the same rate."""
    environ = {"SLURM_COORDINATOR_ADDRESS": "127.0.0.1"}  # scontrol is not there
    long = simulate.run([sys.executable, str(EXAMPLES / "legacy_multinode.py")], nodes=2, env=environ)
    assert long.returncode == 0, long.failure

    def devices(text: str) -> list[str]:
        return [line for line in without_greetings(text.splitlines()) if "devices" in line]

    short = ran("my_svgd.py").text
    assert sorted(devices(long.output)) == sorted(devices(short))
    assert len(devices(short)) == 2 * 2
    assert answer(long.output) == pytest.approx(answer(short), abs=2e-3)


# The full example ----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_options_of_the_full_example(tmp_path: Path, reader: Reader) -> None:
    """Exchange, timing log and output are passed on; what it saved is drawn, with the mean that the run has said."""
    log, saved, picture = (tmp_path / name for name in ("timing.jsonl", "missing/particles.npz", "particles.png"))
    given = [f"--timing-log={log}", f"--output={saved}", f"--checkpoint-dir={tmp_path / 'saved'}"]
    program = [sys.executable, str(EXAMPLES / "slurm_multinode_example.py")]
    result = simulate.run([*program, "--particles=21", "--loci=10", "--every=5", "--steps=10", *given], nodes=2)
    text, status = reader.alone([sys.executable, str(EXAMPLES / "draw_particles.py"), str(saved), str(picture)])

    assert result.returncode == 0, result.failure
    assert len(log.read_text().splitlines()) == 2 * 2
    assert status == 0, text
    assert f"rate: mean {answer(result.output)[0]:.3f}," in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_which_interface_alone(reader: Reader) -> None:
    """One process alone has nothing to send; the program ends with status 2 and says how to start several."""
    text, status = reader.alone([sys.executable, str(EXAMPLES / "which_interface.py")])

    assert status == 2
    assert "one process sends nothing. Start several: srunbook simulate --nodes 2" in text


def test_no_nccl_on_cpus() -> None:
    """Processes that have exchanged particles on CPUs have not loaded NCCL."""
    result = simulate.run([sys.executable, str(EXAMPLES / "which_interface.py"), "--times=1"], nodes=2)

    assert result.returncode == 0, result.failure
    assert len(re.findall("NCCL is not loaded$", result.output, re.MULTILINE)) == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--particles=0", "--particles 0: give 1 or more"),
        ("--output=/dev/null/particles.npz", "--output /dev/null/particles.npz: [Errno 17] File exists"),
    ],
)
def test_bad_options(option: str, message: str, reader: Reader) -> None:
    """A wrong option ends the program with status 2 and a line that says what is wrong, before JAX is started."""
    output, status = reader.alone([sys.executable, str(EXAMPLES / "slurm_multinode_example.py"), option])

    assert status == 2
    assert message in output
    assert "Traceback" not in output


# The scripts ---------------------------------------------------------------------------------------------------------

SIZES = {
    "small_scale": (2, 4, 32),
    "slurm_multinode": (4, 8, 128),
    "medium_scale": (4, 16, 256),
    "slurm_multinode_advanced": (8, 16, 512),
    "large_scale": (16, 32, 2048),
}
"""Nodes, CPUs on each, and particles, by script."""


def made_by(text: str) -> str:
    """Return the command on the third line of a script."""
    return text.splitlines()[2].removeprefix("# Made by: ")


def typed(command: str) -> Result:
    """Run a command of srunbook as if it was typed in this folder."""
    name, *arguments = shlex.split(command)
    assert name == "srunbook"
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("name", SIZES)
def test_script_is_a_rendering(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of the guide is exactly what the command on its third line prints."""
    monkeypatch.chdir(ROOT)
    text = (SCRIPTS / f"{name}.sbatch").read_text(encoding="utf-8")
    again = typed(made_by(text))
    nodes, cpus, particles = SIZES[name]

    assert again.exit_code == 0, again.output
    assert again.stdout == text
    assert f"#SBATCH --job-name={name}\n" in text
    assert f"#SBATCH --nodes={nodes}\n" in text
    assert re.search(rf"^#SBATCH --cpus-per-task={cpus} ", text, re.MULTILINE)
    assert f"  --particles={particles}\n" in text or particles == 128


def test_scripts_are_those_of_the_page() -> None:
    """The page has the command of the first script, and all scripts with nodes, CPUs, devices and particles."""
    page = (PAGES / "scripts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\.sbatch` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| [\d,]+ \|$", page, re.MULTILINE)

    assert f"$ {made_by((SCRIPTS / 'slurm_multinode.sbatch').read_text(encoding='utf-8'))}\n" in page
    small = {"my_svgd", "my_svgd_gpu"}  # to be edited, and not in the table
    assert {path.stem for path in SCRIPTS.glob("*.sbatch")} == SIZES.keys() | small
    assert {row[0]: (int(row[1]), int(row[2]), int(row[4])) for row in rows} == SIZES
    assert all(int(nodes) * int(cpus) == int(devices) for _, nodes, cpus, devices, _ in rows)


def test_commands_of_the_pages_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each `srunbook generate` of the guide prints a script, or what it says."""
    commands = [
        command.split(" | ")[0]
        for page in PAGES.glob("*.md")
        for command in re.findall(r"^\$ (srunbook generate .*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    for folder in ("examples/slurm_configs", "examples/svgd"):
        for path in (ROOT / folder).iterdir():
            if path.is_file():
                (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "slurm_configs").symlink_to(ROOT / "examples" / "slurm_configs")
    monkeypatch.chdir(tmp_path)
    results = {command: typed(command) for command in commands}

    assert len(results) >= 4
    assert {command: result.output for command, result in results.items() if result.exit_code} == {}
    assert (tmp_path / "submit.sh").is_file()
