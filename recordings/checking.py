"""Compare a run with the recording beside its source, or write that: the same for programs, job scripts and entries."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recordings import Recording, read_recording, recording_path, write_recording
from recordings.comparing import JOB_MASKS, MASKS, Mask, compare, masked
from recordings.library_lines import is_library_line, without_greetings

FRAMEWORKS = ("jax", "torch", "lightning", "accelerate", "transformers")

FRAMES = re.compile(r" *(\d+: )?(frame #\d+: |<omitting python frames>$|Exception raised from )| *\d+: $")
"""Lines of a stack of C++, which name folders of the machine and stay out of recordings."""

SHOWN_JOB = re.compile(r"\s*$|(JobId|   \w+)=")
"""Lines of `scontrol show job`, which differ between generations of Slurm."""


def new_run(source: Path, command: str, output: str, *, programs: Iterable[Path] = (), **stamp: Any) -> Recording:
    """Describe a run as a recording would.

    Args:
        source: The program or script.
        command: What was typed.
        output: What it printed.
        programs: Files besides the source whose imports tell which versions matter.
        stamp: Other fields of the recording.
    """
    texts = [path.read_text(encoding="utf-8") for path in (source, *programs)]
    used = [x for x in FRAMEWORKS if any(re.search(rf"^(import|from) {x}\b", text, re.MULTILINE) for text in texts)]
    return Recording(
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        source_sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        output=tuple(line.rstrip() for line in output.splitlines() if not FRAMES.match(line)),
        **stamp | {"versions": stamp["versions"] | {name: importlib.metadata.version(name) for name in used}},
    )


def check(
    source: Path,
    run: Recording,
    keep: Callable[[str], object] = bool,
    masks: Iterable[Mask] = (),
    *,
    record: bool,
    again: str,
    once: bool = False,
    name: str = "",
) -> None:
    """Compare a run with the recording beside its source. The generation of Slurm that recorded it is its home.

    Args:
        source: The program or script.
        run: What it printed now.
        keep: Which lines have to be the same, in any order.
        masks: What may vary in them, besides what may vary everywhere.
        record: Whether to write what differs; on another generation than its home, only that it ran there as well.
        again: The command that does so.
        once: Whether it does not matter how often a line comes.
        name: Name of a special run, which has a recording of its own.

    Raises:
        AssertionError: It differs, or there is no recording.
    """
    path = recording_path(source, name)
    recorded = read_recording(path) if path.exists() else None
    problem = difference(recorded, run, keep, masks, once=once) if recorded else f"{path.name} is missing"
    if record:
        if recorded and generation(recorded) != generation(run):
            others = [item for item in recorded.also if item["slurm"] != run.versions["slurm"]]
            here = {"slurm": run.versions["slurm"], "date": run.date}
            recorded = replace(recorded, also=sorted([*others, here], key=lambda item: item["slurm"]))
            write_recording(path, recorded)
        elif problem:
            if generation(run) and "RendezvousConnectionError" in run.text:
                raise AssertionError("an agent of torchrun came too late to close the rendezvous: record this again")
            same = recorded and recorded.source_sha256 == run.source_sha256
            recorded = replace(run, also=recorded.also if recorded and same else [])
            write_recording(path, recorded)
            problem = difference(recorded, run, keep, masks, once=once)
    if problem:
        raise AssertionError(f"{problem}\nIf this is as it should be: {again} --record")


def generation(run: Recording) -> str:
    """Return the generation of Slurm, such as 22.05, or nothing for a run without Slurm."""
    return run.versions.get("slurm", "").rpartition(".")[0]


def difference(
    recorded: Recording,
    run: Recording,
    keep: Callable[[str], object] = bool,
    masks: Iterable[Mask] = (),
    *,
    once: bool = False,
) -> str | None:
    """Say in what a run differs from a recording, as `check` does."""
    if recorded.source_sha256 != run.source_sha256:
        return "the recording is of another version of the file"
    masks = (*masks, *MASKS, *(JOB_MASKS if generation(run) else ()))
    for field in ("command", "where", "exit_code"):
        was, now = (masked(str(getattr(item, field)), masks) for item in (recorded, run))
        either = field == "exit_code" and run.where != "process" and recorded.exit_code and run.exit_code
        if was != now and not either:  # which of several ranks fails first is chance
            return f"the recording has {field} {was}; this run has {now}"
    for name in (recorded.versions.keys() & run.versions.keys()) - {"slurm", "python"}:
        was, now = (item.versions[name].split("+")[0] for item in (recorded, run))
        if was != now:
            return f"the recording is of {name} {was}; this run is of {now}"
    before, after = (without_greetings(item.output) for item in (recorded, run))
    if generation(recorded) != generation(run):
        before, after = ([line for line in lines if not SHOWN_JOB.match(line)] for lines in (before, after))
    kept, new = ([line for line in lines if keep(line) and not is_library_line(line)] for lines in (before, after))
    if once or run.exit_code:  # which rank fails first is chance, and with it how often a message comes
        kept, new = (sorted({masked(line, masks) for line in lines}) for lines in (kept, new))
    different = compare(kept, new, masks)
    return different or (None if run.exit_code or generation(run) else never_printed(before, after, keep))


def never_printed(recorded: Iterable[str], printed: Iterable[str], keep: Callable[[str], object]) -> str | None:
    """Name recorded lines outside of the comparison that the run did not print and that are no noise.

    What stands on a page has to have been printed, be it essential or not. Numbers, hashes, addresses may differ.
    """

    def shape(line: str) -> str:
        numbers = r"\\x[0-9a-f]{2}|\b0x[0-9a-f]+|\b[0-9a-f]{64}\b|(?<=params=)[0-9a-f]+|[\d.:]*\d[\d.:]*|\bnode\w+"
        numbered = re.sub(numbers, "#", line)
        # XLA appends which kinds of errors it has seen in any order, and one of several that it ends with.
        # PyTorch's warnings name a file with or without the folder of all packages.
        named = re.sub(r"\[type\.googleapis[^\]]*\]|(?<=absl::Status:).*|\bsite-packages/", "", numbered)
        return " ".join(named.split())  # the width of a column follows from its numbers

    known = set(map(shape, printed))
    unknown = [line for line in recorded if not keep(line) and not is_library_line(line) and shape(line) not in known]
    return "recorded, but not printed:\n" + "\n".join(unknown) if unknown else None
