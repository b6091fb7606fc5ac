"""Make the corpus on which `srunbook explain` is measured: jobs that failed and jobs that did not, each with its log.

python bench/explain_corpus.py --simulated 2        # two turns of programs in the simulation
python bench/explain_corpus.py --slurm 24.11        # scripts on a real cluster of that generation; needs root
python bench/explain_corpus.py --pack               # writes bench/results/explain_corpus/*.jsonl.xz
python bench/explain_corpus.py --simulated 1 --only torch-peer-died --limit 3

Each job is appended to build/explain_corpus/jobs.jsonl as it ends, after those that are committed; none is run again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

from helpers.corpus import HALVES, Job, as_line, half_of, pack, path_of, read_jobs  # noqa: E402

MADE = ROOT / "build" / "explain_corpus" / "jobs.jsonl"
UNFIT = MADE.with_name("unfit.txt")


class Kept:
    """The jobs that were made, in a file that grows.

    Args:
        limit: Number of jobs to make.
    """

    def __init__(self, limit: int) -> None:
        MADE.parent.mkdir(parents=True, exist_ok=True)
        if not MADE.exists():
            MADE.write_text("".join(as_line(job) for half in HALVES for job in read_jobs(path_of(half))), "utf-8")
        self.names = {job.name for job in read_jobs(MADE)}
        self.names |= {line.split("\t")[0] for line in UNFIT.read_text().splitlines()} if UNFIT.exists() else set()
        self.left = limit

    def wanted(self, name: str) -> bool:
        """Tell whether a job is to be made."""
        return self.left > 0 and name not in self.names

    def add(self, job: Job) -> None:
        """Append a job."""
        self.names.add(job.name)
        self.left -= 1
        with MADE.open("a", encoding="utf-8") as file:
            file.write(as_line(job))
        print(f"{time.strftime('%H:%M:%S')} {job.kind:8} {job.name}", flush=True)

    def leave_out(self, name: str, why: str) -> None:
        """Note a run that was not what its label says."""
        self.names.add(name)
        with UNFIT.open("a", encoding="utf-8") as file:
            file.write(f"{name}\t{why}\n")
        print(f"{time.strftime('%H:%M:%S')} unfit    {name}: {why}", flush=True)


def simulate(turns: int, kept: Kept, only: str) -> None:
    """Run programs in the simulation, one after the other."""
    from helpers.corpus_plan import plan
    from helpers.corpus_simulated import Unfit, run
    from support.preloaded import preloaded

    wanted = [planned for planned in plan(turns) if re.search(only, planned.name) and kept.wanted(planned.name)]
    print(f"{len(wanted)} jobs to run in the simulation")
    with tempfile.TemporaryDirectory() as folder, preloaded(Path(folder)) as forked:
        for planned in wanted:
            if not kept.wanted(planned.name):
                break
            try:
                kept.add(run(planned, forked))
            except Unfit as why:
                kept.leave_out(planned.name, str(why))


def on_slurm(generation: str, kept: Kept, only: str, cluster: str, seconds: float) -> None:
    """Submit scripts to a cluster, several at once."""
    from helpers.corpus_slurm import plan, run_all

    wanted = [one for one in plan(generation) if re.search(only, one.name) and kept.wanted(one.name)][: kept.left]
    print(f"{len(wanted)} jobs to run on Slurm {generation}")
    run_all(generation, wanted, cluster, seconds, kept.add, kept.leave_out)


def main() -> None:
    """Make what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulated", type=int, metavar="TURNS", help="run programs in the simulation")
    parser.add_argument("--slurm", metavar="GENERATION", help="run scripts on a cluster")
    parser.add_argument("--cluster", default="corpus", help="name of the cluster")
    parser.add_argument("--seconds", type=float, default=240, help="no job starts later on the cluster")
    parser.add_argument("--only", default="", metavar="REGEX", help="jobs whose name matches")
    parser.add_argument("--limit", type=int, default=10**6, help="number of jobs to make")
    parser.add_argument("--pack", action="store_true", help="write the files that are committed")
    options = parser.parse_args()
    kept = Kept(options.limit)
    if options.simulated:
        simulate(options.simulated, kept, options.only)
    if options.slurm:
        on_slurm(options.slurm, kept, options.only, options.cluster, options.seconds)
    if options.pack:
        jobs = read_jobs(MADE)
        for half in HALVES:
            pack([job for job in jobs if half_of(job.program) == half], path_of(half))
            print(path_of(half).relative_to(ROOT), path_of(half).stat().st_size, "bytes")


if __name__ == "__main__":
    main()
