"""What a job script has to show for itself on a real Slurm, and the recording of what it printed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from recording_files import Recording, read_recording, recording_path, write_recording
from support.comparing import Mask, compare
from support.library_lines import program_lines, without_greetings

from srunbook.cluster import FinishedJob, State
from srunbook.ranklog import RankStart, parse_rank_lines

ROOT = Path(__file__).resolve().parents[2]

MASKS = (
    Mask(r"\b(JobId|JOBID)=\d+", r"\1=<id>", "Slurm numbers jobs as they come"),
    Mask(r"\bjob=\d+", "job=<id>", "Slurm numbers jobs as they come"),
    Mask(r"\b[Jj]ob \d+", "job <id>", "Slurm numbers jobs as they come"),
    Mask(r"-\d+\.(out|err)\b", r"-<id>.\1", "the job's number is part of the name"),
    Mask(r"\bpid=\d+", "pid=<pid>", "the kernel numbers processes as they come"),
    Mask(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "<time>", "the job ran at another time"),
    Mask(r"(RunTime|PreemptEligibleTime|LastSchedEval|Scheduler)=\S+", r"\1=<time>", "when Slurm looked at the job"),
    Mask(r"TimeLimit=\S+", "TimeLimit=<limit>", "a job under test gets more time than its script asks for"),
    Mask(r" --time=60\b", "", "a job under test gets more time than its script asks for"),
    Mask(r"Priority=\d+", "Priority=<number>", "every later job has a lower one"),
    Mask(r"(AllocNode:Sid=\S+):\d+", r"\1:<pid>", "the kernel numbers sessions as they come"),
    Mask(r"/home/(\w+)/[\w.-]+", r"/home/\1/<folder>", "each submission has a folder of its own"),
    Mask(r"(10\.77\.0\.\d+|node\d+):\d+", r"\1:<port>", "ports are derived from the job's number"),
    Mask(r"\bnode(\d+\b|\[[\d,-]+\])", "<nodes>", "Slurm takes whichever nodes are idle"),
    Mask(r"\b[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", "<log> ", "time and thread of a log line of JAX"),
    Mask(r"\[W\d{4} [\d:.]+ ", "[W<time> ", "time of a warning of PyTorch"),
    Mask(r"\bparams=[0-9a-f]+\b", "params=<hash>", "sums over a network round in the order of arrival"),
    Mask(r"\b\d+\.\d+ ?(s|ms)\b", r"<duration> \1", "how long something took"),
)

TORCHRUN_MASKS = (
    Mask(r"^\d+: ", "<node>: ", "torchrun numbers its nodes in the order of their arrival"),
    Mask(r"Loss: [\d.]+", "Loss: <n>", "processors round in different ways, and training amplifies it"),
    Mask(r"[\d.]+%", "<n>%", "processors round in different ways, and training amplifies it"),
    Mask(r"\bloss=[\d.]+", "loss=<n>", "processors round in different ways, and training amplifies it"),
)
"""What may vary besides in a script that starts torchrun."""

GLOO_MASKS = (
    Mask(r"((?:train|val)_(?:loss|mae|rmse)) [\d.]+", r"\1 <n>", "processors round in different ways"),
    Mask(r"\bloss=[\d.]+", "loss=<n>", "processors round in different ways, and training amplifies it"),
    Mask(r"^( +\d+)( +\d+\.\d\d){6}$", r"\1 <times>", "machines are not equally fast"),
    Mask(r"^( +\d+ +\d+) .*%$", r"\1 <figures>", "machines are not equally fast"),
    Mask(r"^bottleneck: .*", "bottleneck: <part>", "it depends on what else the machine does"),
)
"""What may vary besides in a script of the gloo guide."""

LIGHTNING_MASKS = (
    Mask(r"[\d.]+ samples/s", "<n> samples/s", "machines are not equally fast"),
    Mask(r"((?:train|val)_(?:loss|accuracy)) [\d.]+%?", r"\1 <n>", "processors round in different ways"),
    Mask(r"\bloss=[\d.]+", "loss=<n>", "processors round in different ways, and training amplifies it"),
)
"""What may vary besides in a script of the Lightning guide."""

SVGD_MASKS = (
    Mask(r"direction .* a step", "direction <n>, bandwidth <n>, <t> a step", "processors round in different ways"),
    Mask(r"(rate|mutation) [\d.]+ \+- [\d.]+", r"\1 <n> +- <n>", "processors round in different ways"),
)
"""What may vary besides in a script of the SVGD guide."""

SVGD_LINES = re.compile(r" *\d+: (rank|\d+ particles|step|rate|mutation|went on|stopped) ")
"""Lines of a script of the SVGD guide that the transport does not tear: the threads of a process greet all at once."""

SIXTEEN_BITS_MASKS = (Mask(r"loss [\d.]+", "loss <n>", "processors round 16 bits in different ways"),)
"""What may vary besides in a script whose program computes in mixed precision."""

SIXTEEN_BITS_LINES = re.compile(r" *\d+: (rank|step|warning:) ")
"""Lines of such a program: where several torchruns end, the last one may complain that the first has left."""

FRAMES = re.compile(r" *(\d+: )?(frame #\d+: |<omitting python frames>$|Exception raised from )| *\d+: $")
"""Lines of a stack of C++, which name folders of the machine and stay out of recordings."""

GENERATION_LINES = re.compile(r"\s*$|(JobId|   \w+)=")
"""Lines that differ between generations: of `scontrol show job`."""


def asked_for(script: Path) -> tuple[int, int, int | None]:
    """Return the nodes, tasks and ranks that a script asks for; None where it decides on the ranks when it runs."""
    text = script.read_text(encoding="utf-8")
    asked = {name: int(value) for name, value in re.findall(r"^#SBATCH --([\w-]+)=(\d+)\b", text, re.MULTILINE)}
    tasks = asked.get("ntasks") or asked.get("nodes", 1) * asked.get("ntasks-per-node", 1)
    # One task for each node starts several ranks there.
    launches_itself = "torchrun" in text or "accelerate launch" in text
    return asked.get("nodes", 1), tasks, None if launches_itself else tasks


class Proof:
    """Decide whether a job did what its script is for, and keep or compares its output."""

    def __init__(self, state: State) -> None:
        self.state = state

    @staticmethod
    def shortcomings(script: Path, job: FinishedJob) -> list[str]:
        """Return what is missing in a job's accounting and in the lines of its ranks."""
        found = [
            f"{row['JobID']} is {row['State']} {row['ExitCode']}"
            for row in job.rows
            if (row["State"], row["ExitCode"]) != ("COMPLETED", "0:0")
        ]
        if not job.rows:
            found.append("accounting knows nothing of the job")
        lines = job.output.splitlines()
        nodes, tasks, ranks = asked_for(script)
        speaking = {int(match[1]) for line in lines if (match := re.match(r"\s*\[?(\d+)[\]:] ", line))}
        if missing := set(range(tasks)) - speaking:
            found.append(f"nothing was printed by rank {', '.join(map(str, sorted(missing)))} of {tasks}")
        records = parse_rank_lines(lines)
        if records:
            sizes = {record.world_size for record in records if isinstance(record, RankStart)}
            size = ranks or max(sizes, default=tasks)
            if sizes != {size} or size % tasks:
                found.append(f"world sizes {sorted(sizes)} were seen, and Slurm gave {tasks} tasks")
            hosts = {record.host for record in records if isinstance(record, RankStart)}
            if len(hosts) != nodes:
                found.append(f"ranks started on {', '.join(sorted(hosts))}, and {nodes} nodes were asked for")
            starts = sorted(record.rank for record in records if isinstance(record, RankStart))
            ends = sorted(record.rank for record in records if not isinstance(record, RankStart))
            found += [
                f"records {what} are of ranks {seen}, and there should be one of each of {size}"
                for what, seen in (("start", starts), ("end", ends))
                if seen != list(range(size)) and (seen or what == "start")  # the first programs say no end
            ]
        return found

    def difference(self, script: Path, job: FinishedJob, recording: Recording) -> str | None:
        """In what a job differs from the recording of its script, as far as it is comparable."""
        if recording.source_sha256 != hashlib.sha256(script.read_bytes()).hexdigest():
            return "the recording is of another version of the script"
        printed, recorded = (program_lines(without_greetings(x)) for x in (job.output.splitlines(), recording.output))
        if recording.versions["slurm"].rsplit(".", 1)[0] != self.state.root["slurm"].rsplit(".", 1)[0]:
            printed, recorded = ([x for x in lines if not GENERATION_LINES.match(x)] for lines in (printed, recorded))
        text = script.read_text(encoding="utf-8")
        masks = MASKS + (TORCHRUN_MASKS if "torchrun" in text else ()) + (GLOO_MASKS if "BACKEND=gloo" in text else ())
        masks += LIGHTNING_MASKS if script.parent.name == "lightning" else ()
        if script.parent.name == "does_not_fit":
            masks += SIXTEEN_BITS_MASKS
            printed, recorded = ([x for x in lines if SIXTEEN_BITS_LINES.match(x)] for lines in (printed, recorded))
        if script.parent.name == "svgd":
            masks += SVGD_MASKS
            printed, recorded = ([x for x in lines if SVGD_LINES.match(x)] for lines in (printed, recorded))
        return compare(recorded, printed, masks, ordered=False)

    def record(
        self, script: Path, job: FinishedJob, arguments: Sequence[str] = (), *, home: bool, run: str = ""
    ) -> None:
        """Write the recording of a script and what it was given, or add this generation to it.

        Args:
            script: The script.
            job: Its job.
            arguments: What followed the script.
            home: Whether this is the generation whose output is kept.
            run: Name of a special run that has a recording of its own.
        """
        path = recording_path(script, run)
        today = datetime.now(UTC).date().isoformat()
        sha256 = hashlib.sha256(script.read_bytes()).hexdigest()
        earlier = read_recording(path) if path.exists() else None
        here = {"slurm": self.state.root["slurm"], "date": today}
        if not home:
            assert earlier is not None, f"{script.name} has to be recorded on its own generation first"
            others = [item for item in earlier.also if item["slurm"] != here["slurm"]]
            also = sorted([*others, here], key=lambda item: item["slurm"])
            write_recording(path, replace(earlier, also=also))
            return
        assert "RendezvousConnectionError" not in job.output, (
            "an agent of torchrun came too late to close the rendezvous and said so: record this script again"
        )
        also = earlier.also if earlier and earlier.source_sha256 == sha256 else []
        recording = Recording(
            command=shlex.join(["sbatch", script.name, *arguments]),
            where="slurm",
            date=today,
            source_sha256=sha256,
            output=tuple(line for line in job.output.splitlines() if not FRAMES.match(line)),
            versions=self.versions(script),
            plugins={name: self.state.plugins[name] for name in ("proctrack", "task")},
            accounting=job.rows,
            also=also,
        )
        write_recording(path, recording)

    def versions(self, script: Path) -> dict[str, str]:
        """Return the versions that mattered for the job of a script."""
        text = script.read_text(encoding="utf-8")
        versions = {"slurm": self.state.root["slurm"]}
        if "singularity run" in text:
            versions["apptainer"] = self.state.root["versions"]["apptainer"].split("+")[0]
        else:
            versions["python"] = platform.python_version()
        programs = re.findall(r"\b[\w.-]+\.py\b", text)
        folder = ROOT / "examples" / script.parent.name
        found = [path for name in programs for path in (folder / name, folder / "full" / name) if path.exists()]
        texts = [path.read_text(encoding="utf-8") for path in found]
        for name in ("jax", "torch", "lightning", "accelerate", "transformers"):
            if any(re.search(rf"^(import|from) {name}\b", text, re.MULTILINE) for text in texts):
                versions[name] = importlib.metadata.version(name)
        return versions
