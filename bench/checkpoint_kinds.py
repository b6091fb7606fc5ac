"""What five kinds of checkpoints survive: other numbers of processes, a kill during a save, damaged files.

python bench/checkpoint_kinds.py                                                # writes the result
python bench/checkpoint_kinds.py --kills 3 --damages 2 --only Orbax --output here.json

The programs of examples/checkpoints run as they are, but for the size of the model. A rank that writes is killed at
instants spread over a save and the step after it, and the others a moment later. The next run has to load a complete
checkpoint, the last one or the one before: the losses that follow show which.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import shutil
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from helpers.checkpoint_runs import GRACE, Run, prepare
from helpers.typed import typed

from srunbook.measurements import Configuration, Measurement, read_measurement, write_measurement

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
"""A model whose save takes a while, and steps so small that each loss is another for a long time."""

SAVED = 3
"""Step of the newest checkpoint that is damaged, or restored on other numbers of processes."""

STEPS = 66
"""Steps of the run without a break, with which the others are compared."""

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
        rows: `page` for a program as it is shown, `variation` for one that is changed, `background` for one that
            goes on while it saves.
        temporary: A folder for temporary files that lies on another file system.
    """

    name: str
    program: str
    newest: str
    writers: tuple[int, ...] = (0, 1)
    edits: Edits = ()
    rows: str = "page"
    temporary: str = ""


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
ASYNC_SRUNBOOK: Edits = (
    ("*flatten(state))", "*flatten(state), background=True)"),
    ("every process calls it\n", "\n    checkpoints.wait()\n"),
)
KINDS = (
    Kind("torch.save", "with_torch_save.py", "checkpoint.pt", (0,)),
    Kind("torch.distributed.checkpoint", "with_dcp.py", "checkpoints/3/*"),
    Kind("Orbax", "with_orbax.py", "checkpoints/3/**/*"),
    Kind("Lightning", "with_lightning.py", "checkpoints/last.ckpt", (0,)),
    Kind("srunbook.checkpoint", "with_srunbook.py", "checkpoints/step-0000000003/*", (0,)),
    Kind("torch.save onto the old file", "with_torch_save.py", "checkpoint.pt", (0,), AT_ONCE, "variation"),
    Kind(
        "torch.distributed.checkpoint into one folder",
        "with_dcp.py",
        "checkpoints/1/*",
        (0, 1),
        ONE_FOLDER,
        "variation",
    ),
    Kind(
        "Lightning, TMPDIR on another file system",
        "with_lightning.py",
        "checkpoints/last.ckpt",
        (0,),
        rows="variation",
        temporary="/dev/shm",
    ),
    Kind("torch.distributed.checkpoint, async_save", "with_dcp.py", "checkpoints/3/*", (0, 1), ASYNC_DCP, "background"),
    Kind("Orbax, save_async", "with_orbax.py", "checkpoints/3/**/*", (0, 1), ASYNC_ORBAX, "background"),
    Kind(
        "Lightning, AsyncCheckpointIO",
        "with_lightning.py",
        "checkpoints/last.ckpt",
        (0,),
        ASYNC_LIGHTNING,
        "background",
    ),
    Kind(
        "srunbook.checkpoint, background=True",
        "with_srunbook.py",
        "checkpoints/step-0000000003/*",
        (0,),
        ASYNC_SRUNBOOK,
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
        for old, new in (*kind.edits, *LARGER):
            text = text.replace(old, new)
        self.text = text
        whole = self.run(self.folder / "whole", 2, STEPS)
        if whole.end() != "ended" or len(whole.losses) != STEPS:
            raise SystemExit(f"{kind.name} does not train: {(folder / 'whole' / 'errors.txt').read_text()}")
        self.losses = whole.losses
        times = list(whole.times.values())
        self.step_s = statistics.median(after - before for before, after in itertools.pairwise(times))
        shutil.rmtree(self.folder / "whole")
        saved = self.run(self.folder / "saved", 2, SAVED)
        if saved.end() != "ended":
            raise SystemExit(f"{kind.name} does not save")

    def run(self, folder: Path, processes: int, last: int) -> Run:
        """Run the program in a folder."""
        folder.mkdir(exist_ok=True)
        program = folder / self.kind.program
        program.write_text(self.text, encoding="utf-8")
        environ = {"TMPDIR": self.kind.temporary} if self.kind.temporary else {}
        return Run(program, processes, last, slurm="orbax" in self.kind.program, environ=environ)

    def fresh(self) -> Path:
        """Give a folder with the checkpoints of the first steps, and nothing else."""
        folder = self.folder / "trial"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "saved", folder)
        return folder

    def worlds(self) -> int:
        """Count the numbers of processes, of 1, 2 and 4, on which training resumes with the same losses."""
        same = 0
        for processes in (1, 2, 4):
            run = self.run(self.fresh(), processes, SAVED + 2)
            same += run.end() == "ended" and len(run.losses) == 2 and run.started_after(self.losses) == SAVED
        return same

    def kills(self, count: int) -> Counter[str]:
        """Kill runs at `count` instants of a save; each run shows what became of the one before."""
        found: Counter[str] = Counter()
        folder, expected, instant = self.fresh(), {SAVED}, self.step_s
        killed = False
        while True:
            run = self.run(folder, 2, STEPS)
            steps = run.wait_for_steps(2)
            if killed:
                outcome = self.outcome(run, steps, expected)
                found[outcome] += 1
                print(f"  kill {sum(found.values()) - found['late']}: {outcome}", flush=True)
            killed = False
            done = run.started_after(self.losses)
            number = sum(found.values()) - found["late"]
            if number < count and steps and done is not None and done + 4 < STEPS:
                time.sleep(instant * (number + 0.5) / count)
                late = len(run.times) > 2 and self.kind.rows != "background"
                run.kill([self.kind.writers[number % len(self.kind.writers)]])
                time.sleep(GRACE)
                if late:
                    found["late"] += 1
                    instant *= 0.95
                killed = not late
                # With saves in the background the last complete one may be older.
                expected = {done + 1, done + 2} if self.kind.rows != "background" else set(range(1, done + 9))
            run.kill()
            run.end()
            if number >= count:
                return found
            if not killed or done is None or done + 8 > STEPS:
                folder, killed = self.fresh(), False

    def outcome(self, run: Run, steps: bool, expected: set[int]) -> str:
        """Tell what a run made of the checkpoints that it found."""
        done = run.started_after(self.losses)
        if not steps:
            return "failed"
        if done is None:
            return "wrong"
        return "survived" if done in expected else "anew" if done == 0 else "older"

    def damages(self, count: int, kind: str) -> Counter[str]:
        """Truncate the largest file of the newest checkpoint, or flip one of its bytes, at `count` places."""
        found: Counter[str] = Counter()
        for number in range(count):
            folder = self.fresh()
            files = [path for path in folder.glob(self.kind.newest) if path.is_file()]
            path = max(files, key=lambda path: path.stat().st_size)
            place = int(path.stat().st_size * (number + 0.5) / count)
            with path.open("r+b") as file:
                if kind == "truncated":
                    file.truncate(place)
                else:
                    file.seek(place)
                    old = file.read(1)
                    file.seek(place)
                    file.write(bytes([old[0] ^ 0xFF]))
            run = self.run(folder, 2, SAVED + 2)
            ended = run.end()
            done = run.started_after(self.losses)
            after = {0: "anew", 1: "older", 2: "older", SAVED: "unnoticed", None: "unnoticed"}
            outcome = after[done] if ended == "ended" else "refused"
            print(f"  {kind} {number + 1}: {outcome}", flush=True)
            found[outcome] += 1
        return found


def tried(kind: Kind, folder: Path, kills: int, damages: int) -> Configuration:
    """Try one kind. A program that is changed is only killed: it writes the same files."""
    trials = Trials(kind, folder)
    killed = trials.kills(kills)
    samples = {"step_and_save_s": [round(trials.step_s, 4)], f"survived_of_{kills}": [float(killed["survived"])]}
    samples |= {f"killed_{name}": [float(killed[name])] for name in ("failed", "wrong", "older", "anew", "late")}
    if kind.rows == "page":
        samples["resumed_of_3"] = [float(trials.worlds())]
        for what in ("truncated", "flipped"):
            found = trials.damages(damages, what)
            samples[f"{what}_noticed_of_{damages}"] = [float(found["refused"] + found["older"])]
            samples |= {f"{what}_{name}": [float(found[name])] for name in ("refused", "older", "anew", "unnoticed")}
    print({name: value for name, (value,) in samples.items()}, flush=True)
    return Configuration(kind.name, {"rows": kind.rows}, samples)


def main() -> None:
    """Try all kinds that the file does not have yet, and write it after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30, help="kills during a save, for each kind")
    parser.add_argument("--damages", type=int, default=10, help="truncated files, and flipped bytes, for each kind")
    parser.add_argument("--only", default="", help="part of the names of the kinds to try")
    parser.add_argument("--directory", type=Path, default=Path("build"), help="where to write (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT, help="delete it to try all kinds anew")
    options = parser.parse_args()
    prepare()
    options.directory.mkdir(parents=True, exist_ok=True)
    packages = ("torch", "jax", "orbax-checkpoint", "lightning", "fsspec", "srunbook")
    rows = read_measurement(options.output).configurations if options.output.exists() else []
    for kind in KINDS:
        if options.only not in kind.name or kind.name in {row.name for row in rows}:
            continue
        print(kind.name, flush=True)
        with tempfile.TemporaryDirectory(dir=options.directory.absolute(), prefix="bench-kinds-") as folder:
            rows.append(tried(kind, Path(folder), options.kills, options.damages))
        measurement = Measurement.taken_now(
            typed(),
            sorted(rows, key=lambda row: [kind.name for kind in KINDS].index(row.name)),
            versions={name: importlib.metadata.version(name) for name in packages},
            parameters={"kills": options.kills, "damages": options.damages, "processes": 2, "weights": SIZE * SIZE},
        )
        write_measurement(options.output, measurement)


if __name__ == "__main__":
    main()
