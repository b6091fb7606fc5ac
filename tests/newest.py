"""Run everything with the newest version of every package, and list by page what drifted.

python tests/newest.py               # all sessions; job scripts run on the oldest Slurm and need root
python tests/newest.py docs tests    # some of them
python tests/newest.py --keep torch  # all sessions, with the version of torch in constraints.txt

All of this happens in .nox/newest, a copy of the last commit. There, constraints.txt gets the newest versions, and what
prints something else is recorded again. To keep the versions, read what differs, then copy constraints.txt and the
recordings from there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import gate

from recordings import Recording
from recordings.checking import difference

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / ".nox" / "newest"
CONSTRAINTS = COPY / "constraints.txt"
SESSIONS = {"lint": [], "slurm": ["--record"], "tests": ["--full", "--record"], "docs": [], "browser": ["--full"]}
"""The sessions, with their arguments. Those that record come before those that look at recordings."""


def git(*arguments: str) -> str:
    """Run git in the copy; return what it printed."""
    return subprocess.run(["git", *arguments], cwd=COPY, check=True, stdout=subprocess.PIPE, text=True).stdout


def raise_versions(keep: list[str]) -> None:
    """Write the newest versions that fit together into constraints.txt of the copy, and print which are new.

    Args:
        keep: Packages whose versions stay.
    """
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    before = {re.sub(r"[._]", "-", name).lower(): version for name, version in (line.split("==") for line in lines)}
    groups = tomllib.loads((COPY / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    options = ["--quiet", "--no-annotate", "--no-header", "--all-extras", *(f"--group={name}" for name in groups)]
    uv = [sys.executable, "-m", "uv", "pip", "compile", *options, "pyproject.toml", "-"]
    if unknown := {*keep} - {*before}:
        sys.exit(f"constraints.txt has no {', '.join(sorted(unknown))}")
    wanted = "\n".join(["nox", "uv", *(f"{name}=={before[name]}" for name in keep)])
    done = subprocess.run(uv, cwd=COPY, input=wanted, check=True, stdout=subprocess.PIPE, text=True)
    after = dict(line.partition("+")[0].split("==") for line in done.stdout.splitlines())
    CONSTRAINTS.write_text("".join(f"{name}=={after[name]}\n" for name in sorted(after)), encoding="utf-8")
    for name in sorted(after):
        if before.get(name) != after[name]:
            print(f"{name}: {before.get(name, 'new')} -> {after[name]}")


def drifted() -> dict[str, str]:
    """Return what each file prints now that it did not print before, by its path from the root of the repository."""
    found = {}
    for name in git("diff", "--name-only", "--", "*.recording.json").splitlines():
        old, new = (Recording(**json.loads(text)) for text in (git("show", f"HEAD:{name}"), (COPY / name).read_text()))
        differs = difference(replace(old, versions=new.versions), new)
        if differs:
            found[name.partition(".")[0]] = differs
    return found


def main() -> int:
    """Do it, and print the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help=", ".join(SESSIONS), default=[*SESSIONS])
    parser.add_argument("--keep", nargs="+", default=[], metavar="PACKAGE", help="packages whose versions stay")
    given = parser.parse_args()
    shutil.rmtree(COPY, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(COPY)], check=True)
    raise_versions(given.keep)
    red = []
    for session in given.sessions:
        arguments = [sys.executable, "noxfile.py", "-s", session, "--", *SESSIONS[session]]
        if subprocess.run(arguments, cwd=COPY, check=False).returncode:
            red.append(session)
    shown = COPY / "build" / "site-included.json"  # a site that is not built has none
    pages = json.loads(shown.read_text(encoding="utf-8")) if shown.exists() else {}
    pages = {Path(name).with_suffix("").as_posix(): where for name, where in pages.items()}
    print("\nprints something else:")
    for name, differs in drifted().items():
        print(f"\n{', '.join(pages.get(name, ['no page']))}: {name}\n{differs}")
    print(f"\nred: {', '.join(red) or 'nothing'}")
    for session in red:
        for test, case in gate.cases(COPY / gate.REPORTS / f"{session}.xml").items():
            if case.outcome == "failed":
                print(f"{test}: {case.first_line}")
    return bool(red)


if __name__ == "__main__":
    sys.exit(main())
