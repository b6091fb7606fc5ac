"""Faults, and copies of the tree to put them into."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TIERS = ("tests", "docs", "slurm")
FIELDS = ("name", "room", "file", "old", "new", "tier")
GRACE_SECONDS = 10.0
"""How long pytest may take to take down what its tests have started."""


MOUNTED = (
    '[ -e "$1/.nox/env" ] || mount --bind "$2/.nox" "$1/.nox"; mount --rbind "$1" "$2"; cd "$2"; shift 2; exec "$@"'
)
"""Puts a copy of the tree, with the environment in it, over the checkout; nobody outside of this process sees it."""


class MutantError(Exception):
    """Something that was given is wrong; the message says what, and what is expected."""


@dataclass(frozen=True)
class Fault:
    """A change that a test should notice.

    Args:
        name: What it is called, in kebab case.
        room: The room of the library that it is in, or `examples`, `scripts`, `docs`.
        file: Path from the root of the tree.
        old: Text that occurs once in the file.
        new: What stands there instead.
        tier: The session that can see it: `tests`, `docs` or `slurm`.
        by: Test files or node ids that can see it; by default those that name the file or import its room.
    """

    name: str
    room: str
    file: str
    old: str
    new: str
    tier: str
    by: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Digest of what is changed and who is asked: a result of another one is stale."""
        return hashlib.sha256(repr((self.file, self.old, self.new, self.by)).encode()).hexdigest()[:12]

    def lines(self, root: Path) -> range:
        """Find the lines of the old text, from 1.

        Raises:
            MutantError: It does not occur exactly once.
        """
        text = self._text(root)
        first = text[: text.index(self.old)].count("\n") + 1
        return range(first, first + self.old.rstrip("\n").count("\n") + 1)

    def put_into(self, root: Path) -> None:
        """Change the file in a tree.

        Raises:
            MutantError: The old text does not occur exactly once.
        """
        text = self._text(root)
        (root / self.file).write_text(text.replace(self.old, self.new), encoding="utf-8")

    def _text(self, root: Path) -> str:
        path = root / self.file
        if not path.is_file():
            raise MutantError(f"fault {self.name}: there is no {self.file} in {root}; has it moved? Port the fault")
        text = path.read_text(encoding="utf-8")
        found = text.count(self.old)
        if found != 1:
            raise MutantError(
                f"fault {self.name}: its old text occurs {found} times in {self.file}, and has to once: {self.old!r}"
            )
        return text


def read_faults(path: Path, only: Sequence[str] = ()) -> list[Fault]:
    """Read the faults, or those that are named.

    Raises:
        MutantError: The file is missing or has another form, or a name is unknown.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("fault", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MutantError(f"{path}: {error}") from None
    faults = []
    for number, entry in enumerate(entries, 1):
        who = f"{path}: fault {entry.get('name', number)}"
        missing = [name for name in FIELDS if not isinstance(entry.get(name), str)]
        unknown = sorted(set(entry) - {*FIELDS, "by"})
        if missing or unknown:
            raise MutantError(f"{who}: {', '.join(missing or unknown)} {'missing' if missing else 'unknown'}")
        if entry["tier"] not in TIERS or (entry["tier"] == "slurm" and not entry.get("by")):
            raise MutantError(f"{who}: the tier is {' or '.join(TIERS)}, and one of slurm names its tests: by = [...]")
        if entry["old"] == entry["new"]:
            raise MutantError(f"{who}: old and new are the same")
        faults.append(Fault(**{**entry, "by": tuple(entry.get("by", ()))}))
    names = [fault.name for fault in faults]
    if not faults or len(set(names)) < len(names):
        raise MutantError(f"{path}: {'two faults have one name' if faults else 'there is no [[fault]]'}")
    unknown = [name for name in only if name not in names]
    if unknown:
        raise MutantError(f"--only {unknown[0]}: there is no such fault; there are {', '.join(names)}")
    return [fault for fault in faults if not only or fault.name in only]


def copy_tree(root: Path, target: Path) -> None:
    """Copy what git tracks, or would, with the changes of the working tree.

    Raises:
        MutantError: The tree is no checkout.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise MutantError(f"--root {root}: {listed.stderr.strip() or 'git cannot list its files'}")
    for name in listed.stdout.split("\0"):
        source = root / name
        if name and (source.is_file() or source.is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)


class Tree:
    """A copy of the tree, and pytest in it.

    Root on Linux sees the copy in the place of the checkout whose environment runs: then also programs that start from
    a bare environment, and the nodes of a cluster, import what was copied. Others have PYTHONPATH alone for that.

    Args:
        root: The tree.
        folder: An empty folder, on the same disk if there are nodes.
        nodes: Whether nodes of a cluster are to see the environment. They see no mounts in the tree, so it is linked.
    """

    def __init__(self, root: Path, folder: Path, *, nodes: bool = False) -> None:
        self.path = folder / "tree"
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True)
        copy_tree(root, self.path)
        self.place, self.prefix = self.path, []
        environment = Path(sys.prefix).parent
        if environment.name != ".nox":
            return
        inside = self.path / ".nox"
        inside.unlink(missing_ok=True)
        if sys.platform == "linux" and os.geteuid() == 0:
            inside.mkdir()
            if nodes:
                shutil.copytree(sys.prefix, inside / "env", symlinks=True, copy_function=os.link)
            self.place = environment.parent
            self.prefix = ["unshare", "--mount", "sh", "-ec", MOUNTED, "sh", *map(str, (self.path, self.place))]
        else:
            inside.symlink_to(environment)

    def pytest(self, *arguments: str, seconds: float | None, environ: Mapping[str, str] | None = None) -> int | None:
        """Run pytest.

        Args:
            arguments: Its arguments, after those that all calls have.
            seconds: Time for it.
            environ: Variables to set besides.

        Returns:
            Its exit status, or None where time was up.
        """
        shutil.rmtree(self.scratch / "cache", ignore_errors=True)
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not built", "-o", f"cache_dir={self.scratch}/cache"]
        with (self.scratch / "output").open("ab") as output:
            process = subprocess.Popen(
                [*self.prefix, *command, *arguments],
                cwd=self.path,
                env={
                    **os.environ,
                    "PYTHONPATH": str(self.place / "src"),
                    "PYTEST_DEBUG_TEMPROOT": str(self.scratch),
                    "CI": "true",
                    **(environ or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._end(process)
                return None
            except BaseException:
                self._end(process)
                raise

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """Let pytest take down what its tests have started, and then end whatever is left of its session."""
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def failed(self) -> list[str]:
        """Name the tests that failed in the last run, or the files that could not be collected."""
        path = self.scratch / "cache" / "v" / "cache" / "lastfailed"
        return sorted(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []

    def reason(self) -> str:
        """Say in one line why the last test failed, as pytest's summary does."""
        text = (self.scratch / "output").read_text(encoding="utf-8", errors="replace")
        found = re.findall(r"^(?:FAILED|ERROR) .*? - (.*)$", text, re.MULTILINE)
        return found[-1] if found else ""

    def tail(self) -> str:
        """Return the end of what pytest printed."""
        return (self.scratch / "output").read_text(encoding="utf-8", errors="replace")[-2000:]
