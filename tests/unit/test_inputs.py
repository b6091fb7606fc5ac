"""What a test depends on: it runs again when something of that changes, and only then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.inputs import Inputs

FILES = {
    "tests/cluster/test_a.py": """
from pathlib import Path
import pytest
from support.helper import NAME
from srunbook import cluster

SCRIPTS = Path("slurm", "guide")

@pytest.mark.parametrize("script", ["run.sbatch", "other.sbatch"])
def test_script(script):
    assert cluster.submit(SCRIPTS / script)

def test_helper():
    assert cluster.submit(Path("examples", "guide") / NAME)

def test_command():
    assert cluster.run(["srunbook", "verify"])
""",
    "tests/support/helper.py": """
NAME = "first.py"
OTHER = "train.py"
""",
    "slurm/guide/run.sbatch": "#SBATCH --nodes=2\n# not first.py\nsrun python train.py\n",
    "slurm/guide/run.recording.json": "{}",
    "slurm/guide/other.sbatch": "srun python first.py\n",
    "slurm/another/train.py": "",
    "examples/guide/train.py": "import torch\nfrom data import load\nfrom srunbook.svgd import SVGD\n",
    "examples/guide/data.py": "table = 'speeds.csv'\n",
    "examples/guide/speeds.csv": "1,2\n",
    "examples/guide/first.py": "print(1)\n",
    "src/srunbook/__init__.py": "",
    "src/srunbook/cluster/__init__.py": "",
    "src/srunbook/svgd/__init__.py": "from srunbook._files import write_whole\n",
    "src/srunbook/_files.py": "",
    "src/srunbook/verify.py": "",
}
SCRIPT = ("test_script", "run.sbatch")
HELPER = ("test_helper", "")
COMMAND = ("test_command", "")


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., set[str]]:
    """Return a function that changes a file or a version, and says which of the three tests depend on it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    def hashes(torch: str = "2.13.0") -> dict[str, str]:
        inputs = Inputs(tmp_path, lambda name: torch if name == "torch" else None)
        return {
            test: inputs.of(tmp_path / "tests/cluster/test_a.py", test, case)
            for test, case in (SCRIPT, HELPER, COMMAND)
        }

    def change(name: str = "", old: str = "", new: str = "changed = 1\n", torch: str = "2.13.0") -> set[str]:
        before = hashes()
        if name:
            path = tmp_path / name
            text = path.read_text(encoding="utf-8")
            assert old in text
            path.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")
        after = hashes(torch)
        return {test for test, digest in after.items() if digest != before[test]}

    return change


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("slurm/guide/run.sbatch", {"test_script"}),
        ("slurm/guide/run.recording.json", {"test_script"}),
        ("examples/guide/train.py", {"test_script"}),
        ("examples/guide/data.py", {"test_script"}),
        ("examples/guide/speeds.csv", {"test_script"}),
        ("src/srunbook/svgd/__init__.py", {"test_script"}),
        ("src/srunbook/_files.py", {"test_script"}),
        ("examples/guide/first.py", {"test_helper"}),
        ("src/srunbook/cluster/__init__.py", {"test_command"}),
        ("src/srunbook/verify.py", {"test_command"}),
        ("slurm/guide/other.sbatch", set()),
        ("slurm/another/train.py", set()),
    ],
)
def test_a_changed_file(changed: Callable[..., set[str]], name: str, tests: set[str]) -> None:
    """A test depends on the files it names, on what these name and import, and on no others of the guide."""
    assert changed(name) == tests


def test_words_of_the_library_are_no_input(changed: Callable[..., set[str]]) -> None:
    """Comments and docstrings of our library run nothing; in a program, which readers read, they count."""
    assert changed("src/srunbook/_files.py", new='# why\ndef write_whole():\n    """Write."""\n') == {"test_script"}
    assert changed("src/srunbook/_files.py", "Write.", "Write it.") == set()
    assert changed("src/srunbook/_files.py", "# why", "# why it is so") == set()
    assert changed("examples/guide/train.py", new="# why\n") == {"test_script"}


def test_a_changed_version(changed: Callable[..., set[str]]) -> None:
    """A test depends on the version of each package that its programs import."""
    assert changed(torch="2.14.1") == {"test_script"}


def test_changed_code_of_a_test(changed: Callable[..., set[str]]) -> None:
    """A test depends on its own code and on what it uses, not on other tests of its file."""
    path = "tests/cluster/test_a.py"

    assert changed(path, "def test_helper():", "def test_helper():\n    assert NAME") == {"test_helper"}
    assert changed(path, 'Path("slurm", "guide")', 'Path("slurm") / "guide"') == {"test_script"}
    assert changed(path, '"other.sbatch"]', '"other.sbatch", "third.sbatch"]') == set()
    assert changed("tests/support/helper.py", "train.py", "first.py") == set()
