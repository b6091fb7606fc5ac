"""What kinds of checkpoints survive: kills, damaged files, a full disk, a second job, other numbers of processes.

python bench/checkpoint_kinds.py                          # as root, which mounts a small disk; adds what is missing
python bench/checkpoint_kinds.py --kills 3 --damages 2 --only Orbax --output here.json

The programs of examples/checkpoints run as they are, except for the size of the model. After each accident they run
again; the losses of that run show which checkpoint it loaded, and whether that was complete.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers.checkpoint_runs import GRACE, Run, prepare
from helpers.program import write
from measurements import Configuration, read_measurement

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples" / "checkpoints"
RESULT = ROOT / "bench" / "results" / "checkpoint_kinds.json"

SIZE = 1500
LARGER = (
    ("(64, 8)", f"(2, {SIZE})"),
    ("(64, 4)", f"(2, {SIZE})"),
    ("(8, 4)", f"({SIZE}, {SIZE})"),
    ("lr=0.1)", "lr=1e-5)"),
    ("0.1 * momentum", "0.001 * momentum"),
)
"""A model whose save takes a while, and steps so small that every step has its own loss."""

ELSEWHERE = (
    ("    model = ", "    torch.manual_seed(1)\n    model = "),
    ("        self.layer = ", "        torch.manual_seed(1)\n        self.layer = "),
    ("jax.device_put(np.zeros(", "jax.device_put(np.ones("),
)
"""The same training from other weights: what the second of two jobs in one folder runs."""

SAVED = 3
"""Step of the newest checkpoint before an accident."""

STEPS = 40
"""Steps of the run without a break, with which the others are compared."""

TOGETHER = 8
"""Steps of two jobs in one folder."""

WORDS = {
    "newest": "resumes from the newest",
    "older": "resumes from the older one",
    "refused": "clear error",
    "anew": "starts over",
    "hung": "hangs",
    "unnoticed": "unnoticed",
}
"""What can come of an accident, and how tables say it. The newest is the last checkpoint that was written whole."""

Edits = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Kind:
    """A way to save.

    Args:
        name: Its row.
        program: The program that saves in this way.
        newest: Pattern of the files of the checkpoint of step 3.
        writers: Ranks that write.
        edits: What to replace in the program.
        rows: `page` for a program as it is shown, `checked` for one that checks a checkpoint before it loads it,
            `variation` for one that is changed, `background` for one that trains on while it saves.
        temporary: A folder for temporary files on another file system; else they go to the folder of the run.
    """

    name: str
    program: str
    newest: str
    writers: tuple[int, ...] = (0, 1)
    edits: Edits = ()
    rows: str = "page"
    temporary: str = ""


def recipe() -> str:
    """Return seal.py as the page shows it, and the folder that the programs save in."""
    return f'CHECKPOINTS = Path("checkpoints")\n{(PROGRAMS / "seal.py").read_text(encoding="utf-8")}'


SEALED_DCP: Edits = (
    ("def main():", f"{recipe()}\ndef main():"),
    (
        "    newest = [max((int(step) for step in steps if step.isdigit()), default=0)]\n",
        "    newest = [newest_whole(CHECKPOINTS) if dist.get_rank() == 0 else None]\n",
    ),
    (
        "    done = newest[0]\n",
        "    done = int(newest[0].name) if newest[0] else 0\n",
    ),
    ('checkpoint_id=f"checkpoints/{done}"', "checkpoint_id=newest[0]"),
    ("        dcp.save(", '        folder = CHECKPOINTS / f"{step:06}"\n        saved = dcp.save('),
    (
        'checkpoint_id=f"checkpoints/{step}")\n',
        "checkpoint_id=folder)\n"
        "        if dist.get_rank() == 0:\n"
        '            seal(folder, {".metadata", *(part.relative_path for part in saved.storage_data.values())})\n',
    ),
)
SEALED_ORBAX: Edits = (
    (
        'checkpointer = ocp.training.Checkpointer(Path("checkpoints").absolute())\n'
        "seen = checkpointer.latest.step if checkpointer.latest else 0\n",
        f"{recipe()}\n"
        "newest = newest_whole(CHECKPOINTS) if jax.process_index() == 0 else None\n"
        "seen = int(newest.name) if newest else 0\n",
    ),
    (
        "checkpointer.load(done, abstract_state=state)",
        'ocp.load((CHECKPOINTS / f"{done:06}" / "state").absolute(), state)',
    ),
    (
        "    checkpointer.save(step, state)",
        '    folder = CHECKPOINTS / f"{step:06}"\n'
        "    folder.mkdir(parents=True, exist_ok=True)\n"
        '    ocp.save((folder / "state").absolute(), state)',
    ),
    (
        "checkpointer.close()\n",
        "    if jax.process_index() == 0:\n"
        '        seal(folder, [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()])\n',
    ),
)
ZIP_TORCH: Edits = (
    ("import os\n", "import os\nimport zipfile\n"),
    (
        "    state = torch.load(",
        "    if CHECKPOINT.exists() and zipfile.ZipFile(CHECKPOINT).testzip():\n"
        '        raise SystemExit(f"{CHECKPOINT} is damaged")\n'
        "    state = torch.load(",
    ),
)
ZIP_LIGHTNING: Edits = (
    ("import os\n", "import os\nimport zipfile\n"),
    (
        "trainer.fit(",
        'last = "checkpoints/last.ckpt"\n'
        "if os.path.exists(last) and zipfile.ZipFile(last).testzip():\n"
        '    raise SystemExit(f"{last} is damaged")\n'
        "trainer.fit(",
    ),
)
AT_ONCE: Edits = (
    ("torch.save(state, BESIDE)", "torch.save(state, CHECKPOINT)"),
    ("BESIDE.open()", "CHECKPOINT.open()"),
    ("            BESIDE.replace(CHECKPOINT)\n", ""),
)
ONE_FOLDER: Edits = (("checkpoints/{step}", "checkpoints/1"),)
ASYNC_DCP: Edits = (
    ("        dcp.save(", "        step > done + 1 and saving.result()\n        saving = dcp.async_save("),
    ('{step}")\n', '{step}", process_group=group)\n    saving.result()\n'),
    (
        "    optimizer = ",
        "    group = dist.new_group()  # for the thread that saves while the step uses the other\n    optimizer = ",
    ),
)
ASYNC_ORBAX: Edits = (("checkpointer.save(", "checkpointer.save_async("),)
ASYNC_LIGHTNING: Edits = (
    ("import DataLoader\n", "import DataLoader\nfrom lightning.pytorch.plugins.io import AsyncCheckpointIO\n"),
    ("    logger=False,\n", "    logger=False,\n    plugins=AsyncCheckpointIO(),\n"),
)
KINDS = (
    Kind("torch.save", "with_torch_save.py", "checkpoint.pt", (0,)),
    Kind("DCP", "with_dcp.py", "checkpoints/3/*"),
    Kind("Orbax", "with_orbax.py", "checkpoints/3/**/*"),
    Kind("Lightning", "with_lightning.py", "checkpoints/last.ckpt", (0,)),
    Kind("torch.save, testzip", "with_torch_save.py", "checkpoint.pt", (0,), ZIP_TORCH, "checked"),
    Kind("DCP, sealed", "with_dcp.py", "checkpoints/000003/*", (0, 1), SEALED_DCP, "checked"),
    Kind("Orbax, sealed", "with_orbax.py", "checkpoints/000003/**/*", (0, 1), SEALED_ORBAX, "checked"),
    Kind("Lightning, testzip", "with_lightning.py", "checkpoints/last.ckpt", (0,), ZIP_LIGHTNING, "checked"),
    Kind("torch.save onto the old file", "with_torch_save.py", "checkpoint.pt", (0,), AT_ONCE, "variation"),
    Kind("DCP into one folder", "with_dcp.py", "checkpoints/1/*", (0, 1), ONE_FOLDER, "variation"),
    Kind(
        "Lightning, TMPDIR on another file system",
        "with_lightning.py",
        "checkpoints/last.ckpt",
        (0,),
        rows="variation",
        temporary="/dev/shm",
    ),
    Kind("DCP, async_save", "with_dcp.py", "checkpoints/3/*", (0, 1), ASYNC_DCP, "background"),
    Kind("Orbax, save_async", "with_orbax.py", "checkpoints/3/**/*", (0, 1), ASYNC_ORBAX, "background"),
    Kind(
        "Lightning, AsyncCheckpointIO",
        "with_lightning.py",
        "checkpoints/last.ckpt",
        (0,),
        ASYNC_LIGHTNING,
        "background",
    ),
)


class Trials:
    """All that happens to one kind of checkpoint.

    Args:
        kind: The kind.
        folder: An empty folder on the file system that checkpoints go to.
    """

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        text = (PROGRAMS / kind.program).read_text(encoding="utf-8")
        for old, _ in kind.edits:
            if old not in text:
                raise SystemExit(f"{kind.program} has no {old!r} to replace")
        self.text = replaced(text, (*kind.edits, *LARGER))
        whole = self.whole(STEPS)
        self.losses = whole.losses
        times = list(whole.times.values())
        self.step_s = statistics.median(after - before for before, after in itertools.pairwise(times))
        if self.run(self.empty("saved"), 2, SAVED).end() != "ended":
            raise SystemExit(f"{kind.name} does not save")
        self.bytes = sum(path.stat().st_size for path in self.newest(self.folder / "saved"))

    def run(self, folder: Path, processes: int, last: int, edits: Edits = ()) -> Run:
        """Run the program in a folder."""
        program = folder / f"{'other_' if edits else ''}{self.kind.program}"
        program.write_text(replaced(self.text, edits), encoding="utf-8")
        environ = {"TMPDIR": self.kind.temporary or str(folder)}
        return Run(program, processes, last, slurm="orbax" in self.kind.program, environ=environ)

    def whole(self, last: int, edits: Edits = ()) -> Run:
        """Run without a break."""
        folder = self.empty("whole")
        run = self.run(folder, 2, last, edits)
        if run.end() != "ended" or len(run.losses) != last:
            raise SystemExit(f"{self.kind.name} does not train: {(folder / 'errors.txt').read_text()}")
        shutil.rmtree(folder)
        return run

    def newest(self, folder: Path) -> list[Path]:
        """List the files of the checkpoint of step 3."""
        return [path for path in folder.glob(self.kind.newest) if path.is_file()]

    def empty(self, name: str) -> Path:
        """Give an empty folder."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def fresh(self) -> Path:
        """Give a folder with the checkpoints of the first steps, and nothing else."""
        return Path(shutil.copytree(self.folder / "saved", self.empty("trial"), dirs_exist_ok=True))

    def resume(self, folder: Path, last: int, processes: int = 2, other: dict[int, float] | None = None) -> str:
        """Run in a folder with checkpoints, two steps beyond the last that was written whole; return the outcome.

        Args:
            folder: The folder.
            last: Step of the last checkpoint that was written whole.
            processes: How many ranks.
            other: Losses of another job, which may also have written it.
        """
        run = self.run(folder, processes, last + 2)
        ended = run.end()
        if ended != "ended":
            lines = (folder / "errors.txt").read_text(errors="replace").splitlines()
            print(f"    {next((line for line in reversed(lines) if 'rror' in line), 'no message')[:200]}")
            return "hung" if ended == "hung" else "refused"
        found = [run.started_after(losses) for losses in (self.losses, other or {})]
        done = next((step for step in found if step is not None), None)
        return "unnoticed" if done is None else "anew" if done == 0 else "newest" if done >= last else "older"

    def ranks(self) -> list[str]:
        """Resume on 1, 2 and 4 processes."""
        return [self.resume(self.fresh(), SAVED, processes) for processes in (1, 2, 4)]

    def killed(self, count: int) -> list[str]:
        """Kill runs at `count` instants of a save and the step after it; each run shows what became of the last."""
        found: list[str] = []
        folder, expected, instant = self.fresh(), {SAVED}, self.step_s
        background = self.kind.rows == "background"
        killed = False
        while True:
            run = self.run(folder, 2, STEPS)
            steps = run.wait_for_steps(2)
            done = run.started_after(self.losses)
            if killed:
                known = "newest" if done in expected else "anew" if done == 0 else "older"
                found.append("refused" if not steps else "unnoticed" if done is None else known)
                print(f"  killed {len(found)}: {found[-1]}", flush=True)
            killed = False
            if len(found) < count and steps and done is not None and done + 4 < STEPS:
                time.sleep(instant * (len(found) + 0.5) / count)
                late = len(run.times) > 2 and not background
                run.kill([self.kind.writers[len(found) % len(self.kind.writers)]])
                time.sleep(GRACE)
                killed = not late
                instant *= 0.95 if late else 1
                # With saves in the background the last complete one may be older.
                expected = set(range(1, done + 9)) if background else {done + 1, done + 2}
            run.kill()
            run.end()
            if len(found) >= count:
                return found
            if not killed or done is None or done + 8 > STEPS:
                folder, killed = self.fresh(), False

    def damaged(self, kind: str, count: int) -> list[str]:
        """Truncate the largest file of the newest checkpoint, flip one of its bytes, or delete it."""
        found = []
        for number in range(count):
            folder = self.fresh()
            path = max(self.newest(folder), key=lambda path: path.stat().st_size)
            place = int(path.stat().st_size * (number + 0.5) / count)
            if kind == "missing":
                path.unlink()
            else:
                data = bytearray(path.read_bytes())
                data[place] ^= 0xFF
                path.write_bytes(data[:place] if kind == "truncated" else data)
            outcome = self.resume(folder, SAVED)
            # It has loaded the changed byte, even if the next losses do not show it.
            found.append("unnoticed" if (kind, outcome) == ("flipped", "newest") else outcome)
            print(f"  {kind} {number + 1}: {found[-1]}", flush=True)
        return found

    def full(self) -> list[str]:
        """Run on a disk that has no room for the next checkpoint, make room, and resume."""
        folder = self.empty("disk")
        used = sum(path.stat().st_size for path in (self.folder / "saved").rglob("*") if path.is_file())
        size = used + self.bytes // 2 + (1 << 20)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
        try:
            shutil.copytree(self.folder / "saved", folder, dirs_exist_ok=True)
            ended = self.run(folder, 2, SAVED + 2).end()
            if ended != "failed":
                return ["hung" if ended == "hung" else "unnoticed"]
            subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True)
            return [self.resume(folder, SAVED)]
        finally:
            subprocess.run(["umount", folder], check=True)

    def two(self, count: int) -> list[str]:
        """Start two jobs at once in one empty folder, from different weights, and then resume."""
        other = self.whole(TOGETHER + 2, ELSEWHERE).losses
        found = []
        for number in range(count):
            folder = self.empty("two")
            jobs = [self.run(folder, 2, TOGETHER, edits) for edits in ((), ELSEWHERE)]
            ended = [job.end() for job in jobs]
            outcome = self.resume(folder, TOGETHER, other=other)
            # A job that fails is an error, and one that hangs hangs, unless what they leave behind is a mixture.
            if outcome != "unnoticed" and ended != ["ended", "ended"]:
                outcome = "hung" if "hung" in ended else "refused"
            found.append(outcome)
            print(f"  two {number + 1}: {ended}, then {outcome}", flush=True)
        return found


def replaced(text: str, edits: Edits) -> str:
    """Replace parts of a text."""
    for old, new in edits:
        text = text.replace(old, new)
    return text


def tried(kind: Kind, row: Configuration | None, folder: Path, kills: int, damages: int) -> Configuration:
    """Put one kind through what its row lacks. A program that saves the same files in another way is only killed."""
    wanted: dict[str, Callable[[Trials], list[str]]] = {
        "killed": lambda trials: trials.killed(kills),
        "truncated": lambda trials: trials.damaged("truncated", damages),
        "flipped": lambda trials: trials.damaged("flipped", damages),
        "missing": lambda trials: trials.damaged("missing", 1),
        "full": lambda trials: trials.full(),
        "two": lambda trials: trials.two(3),
        "ranks": lambda trials: trials.ranks(),
    }
    compared = kind.rows in ("page", "checked")
    samples = dict(row.samples) if row else {}
    missing = [
        name
        for name in (wanted if compared else ["killed"])
        if not any(quantity.startswith(f"{name}_") for quantity in samples)
    ]
    if row and not missing:
        return row
    print(kind.name, flush=True)
    trials = Trials(kind, folder)
    samples |= {"step_and_save_s": [round(trials.step_s, 4)], "checkpoint_MB": [round(trials.bytes / 1e6, 1)]}
    for name in missing:
        found = wanted[name](trials)
        counts = Counter(found)
        samples |= {f"{name}_{outcome}_of_{len(found)}": [float(counts[outcome])] for outcome in counts}
    parameters: dict[str, str] = {"rows": kind.rows}
    if compared:
        parameters |= {"library": kind.name.partition(",")[0], "check": "with" if kind.rows == "checked" else "without"}
        parameters |= {name: said(name, samples) for name in wanted}
    return Configuration(kind.name, parameters, samples)


def said(name: str, samples: dict[str, list[float]]) -> str:
    """Say what came of one accident."""
    counts = {
        outcome: int(series[0])
        for outcome in WORDS
        for quantity, series in samples.items()
        if quantity.startswith(f"{name}_{outcome}_")
    }
    total = sum(counts.values())
    return ", ".join(
        WORDS[name] + (f" ({count} of {total})" if count < total else "") for name, count in counts.items()
    )


def main() -> None:
    """Try all kinds for what the file does not have yet, and write it after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30, help="kills during a save, for each kind")
    parser.add_argument("--damages", type=int, default=10, help="truncated files, and flipped bytes, for each kind")
    parser.add_argument("--only", default="", help="part of the names of the kinds to try")
    parser.add_argument("--directory", type=Path, default=Path("build"), help="where to write (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT, help="delete it to measure everything again")
    options = parser.parse_args()
    prepare()
    options.directory.mkdir(parents=True, exist_ok=True)
    packages = ("torch", "jax", "orbax-checkpoint", "lightning", "fsspec", "srunbook")
    measured = read_measurement(options.output).configurations if options.output.exists() else []
    rows = {row.name: row for row in measured}
    for kind in KINDS:
        if options.only not in kind.name:
            continue
        with tempfile.TemporaryDirectory(dir=options.directory.absolute(), prefix="bench-kinds-") as folder:
            row = tried(kind, rows.get(kind.name), Path(folder), options.kills, options.damages)
        if row is rows.get(kind.name):
            continue
        rows[kind.name] = row
        write(
            options.output,
            [rows[kind.name] for kind in KINDS if kind.name in rows],
            versions={name: importlib.metadata.version(name) for name in packages},
            parameters={"kills": options.kills, "damages": options.damages, "processes": 2, "weights": SIZE * SIZE},
        )


if __name__ == "__main__":
    main()
