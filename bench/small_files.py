"""What training on many small files asks of a shared disk: opens and bytes, for each way to read them, on a real Slurm.

python bench/small_files.py         # writes bench/results/small_files.json

Two ranks on two nodes, with two loader workers each, read an epoch, and after a resume in its middle the rest of one.
strace counts what they and sbcast open and read in the folder of the data. Needs Linux, root and strace.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from helpers.program import EXAMPLES, boot, options_of, write
from measurements import Configuration

from srunbook import cluster

PROGRAM = Path(__file__).with_name("ranks") / "small_files.py"
WAYS = {
    "files-islice": ("single files", "DataLoader, islice"),
    "files-stateful": ("single files", "StatefulDataLoader"),
    "shards-islice": ("shards", "DataLoader, islice"),
    "shards-stateful-forgetful": ("shards", "StatefulDataLoader, if the dataset has no state_dict"),
    "shards-stateful": ("shards", "StatefulDataLoader"),
    "grain": ("shards", "grain"),
    "staged": ("shards, copied with sbcast at each start", "any of these"),
}
BATCH = 50
SHARDS = 20  # five for each loader worker: the middle of an epoch is inside a shard

CALL = re.compile(r"^(openat|read|pread64|mmap)\((.*)\) += (\w+)(?:<([^>]*)>)?$", re.MULTILINE)
STRACE = (
    "env LD_LIBRARY_PATH=$PWD ./strace -E LD_LIBRARY_PATH -ff -y --seccomp-bpf --quiet=all --signal=none "
    "-e trace=openat,read,pread64,mmap -o trace.$(hostname)"
)
COPY = "for shard in shards/*; do {strace} sbcast --force $shard /tmp/$(basename $shard); done"


def strace() -> list[Path]:
    """Return strace and the libraries that the nodes lack."""
    found = shutil.which("strace") or sys.exit("error: strace is not installed: apt-get install strace")
    linked = subprocess.run(["ldd", found], check=True, capture_output=True, text=True).stdout
    return [Path(path) for path in [found, *re.findall(r"=> (/\S*(?:unwind|lzma)\S*)", linked)]]


def counted(folder: Path, data: str) -> tuple[int, float]:
    """Return how often files below a folder were opened, and the megabytes read or mapped; remove the traces."""
    opens = size = 0
    for trace in folder.glob("trace.*"):
        for call, arguments, result, path in CALL.findall(trace.read_text(encoding="utf-8", errors="replace")):
            if call == "openat":
                opens += path.startswith(data) and "O_DIRECTORY" not in arguments
            elif f"<{data}" in arguments:
                size += int(arguments.split(", ")[1]) if call == "mmap" else int(result)
        trace.unlink()
    return opens, size / 1e6


def main() -> None:
    """Read in each way, and write the file."""
    options = options_of(__doc__, "small_files", samples=50_000, slurm="22.05")
    rows = []
    state = boot(cluster.Specification(name="bench-files", slurm=options.slurm, nodes=2))
    try:
        inside = cluster.stage(state, EXAMPLES / "runs_that_last" / "pack.py", extra=strace())
        folder = state.folder / inside.removeprefix("/")

        def typed(command: str) -> str:
            line = ["bash", "-c", f"source ~/torch-env/bin/activate; export OMP_NUM_THREADS=1; {command}"]
            done = cluster.capture(state, line, folder=inside)
            if done.returncode:
                raise SystemExit(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
            return done.stdout

        program = (folder / "pack.py").read_text(encoding="utf-8")
        program = program.replace("size=2048", f"size={options.samples}").replace("SHARDS = 16 ", f"SHARDS = {SHARDS} ")
        (folder / "pack.py").write_text(program, encoding="utf-8")
        print(typed("python pack.py"), flush=True)
        for way, (data, reader) in WAYS.items():
            place = "samples" if data == "single files" else "shards"
            samples: dict[str, list[float]] = {}
            for part in ("epoch", "rest"):
                read = f"python {PROGRAM} {way} $PWD/{place} {part} {options.samples} {BATCH}"
                command = f"srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c '{STRACE} {read}'"
                if way == "staged":
                    command = f"salloc --nodes=2 bash -c '{COPY.format(strace=STRACE)}'"
                said = typed(command)
                opens, size = counted(folder, f"{inside}/{place}")
                print(way, part, said.split(), opens, size, flush=True)
                samples |= {f"{part} opens": [opens], f"{part} read_MB": [size]}
            rows.append(Configuration(f"{data}, {reader}", {"data": data, "read with": reader}, samples))
    finally:
        cluster.down(state.specification.name)
    write(
        options.output,
        rows,
        versions={name: version(name) for name in ("torch", "torchdata", "grain")},
        parameters={"samples": options.samples, "files": 2 * options.samples, "shards": SHARDS, "slurm": options.slurm},
    )


if __name__ == "__main__":
    main()
