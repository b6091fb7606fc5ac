"""Draw finished jobs from a seed: honest ones, of every shape that Slurm and programs give them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from support.finished_jobs import SUMMARY, Job, Row, Special, row

PASSED, NOT_PROVEN, REFUSED = "passed", "not proven", "refused"

SHAPES = {
    "plain": 60,  # srun or torchrun; logs, results and accounting of every kind
    "array": 6,  # a task of an array, known by its own number
    "array-named": 4,  # the same, named as 56_3
    "array-whole": 4,  # all tasks of an array, by a number that is also that of the last one
    "het": 5,  # two components of one world
    "het-helper": 2,  # two components, and the ranks are all in the second
    "mpirun": 4,  # a step on all nodes but the first, where mpirun itself starts the ranks
    "two-trainings": 4,  # two steps of the same ranks, one after the other
    "silent": 5,  # ranks that print no rank lines
    "bare": 6,  # rank lines that leave something unsaid
}
"""What jobs there are, and how often each is drawn."""

GUIDE = ("epoch", "train_loss", "val_loss", "val_mae", "val_rmse", "epoch_time_sec", "throughput_samples_per_sec")
GUIDE += ("data_load_time_sec", "compute_time_sec", "gpu_util_avg", "cpu_util_avg")
OWN = ("epoch", "train_loss", "accuracy", "tokens", "seconds")
NEEDED = ("host", "backend", "steps", "params")
NOISE = [b"", b"a\r\nb", b"x" * 5000, b"rank 1 has ended", b"we shrank 3/8 start to end", b"rank 1/2 end of data"]
NOISE += [b"\x1b[32mINFO\x1b[0m loading", b"100%|####| 30/30 [00:01<00:00, 25.1it/s]", b"\x1b[1A\x1b[2K\r 50%"]
NOISE += [b"[rank0]: W1120 10:00:02 socket.cpp:200", b"no nan in step 3", b"epoch 2 of 3 done", b"Gr\xf6\xdfe"]
"""What else a log holds."""

LITTER = [
    ("plots", Special("folder")),
    ("EXECUTION_SUMMARY.md", Special("fifo")),
    ("EXECUTION_SUMMARY.md", b"\xff\xfe\x00"),
    ("EXECUTION_SUMMARY.md", Special("folder")),
    (SUMMARY, b"\xff\xfe\x00"),
    (SUMMARY, Special("fifo")),
    ("events.pipe", Special("fifo")),
    ("latest", Special("link", "nowhere")),
]
"""What may lie in a folder of results beside what counts."""

LOGS = ["slurm-{}.out", "logs/slurm-{}.out", "train_{}.out", "resnet_50_{}.out"]
ODD = ["a b_", "größe_", "bytes\udcff_", "colour\x1b[31m_", "line\nbreak_", "-x_", "*_", "a|b_"]
"""How the name of a folder may begin."""


@dataclass
class Maker:
    """Make one job, step by step."""

    chance: random.Random
    shape: str
    tidy: bool

    def often(self, share: float = 0.5) -> bool:
        """Return True as often as the share says."""
        return self.chance.random() < share

    def job(self) -> Job:
        """Make it."""
        self.choose_place()
        self.choose_words()
        main, answers = self.accounting()
        job = Job(self.shape, self.number, self.number, set(), self.placed, self.hosts, self.attempts, answers, main)
        job.said, job.epochs = self.said, self.epochs
        job.runs = 2 if self.shape == "two-trainings" else 1
        self.results(job)
        self.place_logs(job, self.speak(job))
        self.aim(job)
        job.deserves = self.deserved(job)
        return job

    def choose_place(self) -> None:
        """Choose number, nodes and ranks."""
        pick, several = self.chance.choice, self.shape in ("het", "het-helper", "mpirun")
        self.number = str(self.chance.randint(100, 99999))
        self.base, self.task = str(int(self.number) - self.chance.randint(3, 40)), self.chance.randint(1, 9)
        if self.shape == "array-whole":
            self.base, self.task = self.number, self.chance.randint(3, 9)
        count, first = self.chance.randint(2 if several else 1, 4), self.chance.randint(1, 90)
        pattern = pick(["node{}", "node{}", "rack1n{:02}", "gpu-a{:03}"])
        self.nodes = [pattern.format(first + place) for place in range(count)]
        self.local = self.chance.randint(1, 8 // count)
        self.each = self.local if self.local > 1 and self.often(0.3) else 1  # ranks of a task, as torchrun has them
        self.helpers = self.chance.randint(1, count - 1) if self.shape.startswith("het") else 0
        self.placed = self.nodes[self.helpers :] if self.shape == "het-helper" else self.nodes
        spelling = pick(["{}", "{}", "{}", "{}.cluster.org", "ip-{}-eth0"])
        self.hosts = [spelling.format(node) for node in self.placed for _ in range(self.local)]
        self.attempts = pick([2, 3]) if self.shape in ("plain", "bare") and self.often(0.25) else 1

    def choose_words(self) -> None:
        """Choose what the program writes."""
        pick = self.chance.choice
        self.epochs = self.chance.randint(1, 5)
        self.resumed = self.chance.randint(0, self.epochs - 1) if self.attempts > 1 else 0
        self.appended = self.attempts == 1 or self.often(0.7)
        kinds = ["own", "files", None]
        self.kind = pick(kinds if self.shape == "silent" else [*kinds, "own", "guide", "guide"])
        self.prints = self.kind == "guide" or self.often(0.85)
        self.said = {*NEEDED, "loss"} | {name for name in ("pid", "local_rank", "device", "job") if self.often(0.85)}
        if self.often(0.75) or not self.prints:
            self.said.add("epochs")
        if self.shape == "bare":
            self.said -= set(self.chance.sample(NEEDED, self.chance.randint(1, 4)))
        self.order = self.chance.sample(
            ["host", "local_rank", "pid", "device", "backend", "framework", "job", "epochs"], 8
        )
        self.digest, self.digits = f"{self.chance.getrandbits(256):064x}", pick([12, 12, 12, 64, 8])
        self.form = pick(["{:.6f}", "{:.4f}", "{:.6e}"])
        self.values: list[dict[str, str]] = []

    def accounting(self) -> tuple[Row, dict[str, list[Row]]]:
        """Make what sacct knows; return the step of the ranks, and the rows by the number asked for."""
        rows: list[Row] = []
        name = f"{self.base}_{self.task}" if "array" in self.shape else self.number
        for attempt in range(self.attempts):
            made, main = self.attempt(name)
            state = self.chance.choice(["REQUEUED", "NODE_FAIL", "PREEMPTED"])
            for entry in made if attempt < self.attempts - 1 else ():
                entry.update({"State": "CANCELLED", "ExitCode": "0:15"} if entry.step else {"State": state})
            rows += made
        answers = {self.number: rows}
        if "array" in self.shape:
            answers[name] = rows
        if self.shape == "array-whole":
            others = [self.attempt(f"{self.base}_{task}")[0] for task in range(1, self.task)]
            answers[self.number] = [entry for made in others for entry in made] + rows
        return main, answers

    def attempt(self, name: str) -> tuple[list[Row], Row]:
        """Make the rows of one attempt, or of all components; return the step of the ranks, too."""
        parts = [("", self.nodes)]
        if self.helpers:
            parts = [("+0", self.nodes[: self.helpers]), ("+1", self.nodes[self.helpers :])]
        begun = self.chance.choice(["batch", "batch", "batch", "interactive", ""])
        extern, copy, self.listing = self.often(), self.often(0.3), self.often(0.2)
        rows: list[Row] = []
        for place, (part, nodes) in enumerate(parts):
            program, on, tasks = "python", nodes, len(nodes) * self.local // self.each
            if self.shape == "mpirun":
                program, on, tasks = "prted", nodes[1:], len(nodes) - 1
            elif self.shape == "het-helper" and place == 0:
                program, on, tasks = "feeder", nodes[:1], 1
            ranks = (program, on, tasks)
            steps = [*([("cp", nodes[:1], 1)] if copy else []), ranks, *([ranks] if "two" in self.shape else [])]
            after = [("ls", nodes, 2 * len(nodes) * self.local)] if self.listing else []
            numbered = [(str(number), *step) for number, step in enumerate([*steps, *after])]
            first = [("", "train", nodes, None), *([(begun, begun, nodes[:1], 1)] if begun and not place else [])]
            outside = [("extern", "extern", nodes, len(nodes))] if extern else []
            raw = str(int(self.number) + place)
            rows += [row(name + part, raw, *entry) for entry in (*first, *outside, *numbered)]
            main = rows[-1 - len(after)]
        return rows, main

    def results(self, job: Job) -> None:
        """Fill a folder of results."""
        if self.kind is None:
            return
        named = f"{self.base}_{self.task}" if self.shape in ("array", "array-named") and self.often() else self.number
        start = "ddp_cpu_" if self.kind == "guide" else self.chance.choice(["run_", "my_model_"])
        if self.kind == "own" and not self.tidy and self.often(0.1):
            start = self.chance.choice(ODD)
        job.results = f"results/{start}{named}"
        if self.kind == "files":
            job.required = ("results.json",)
            job.options += ["--require", "results.json"]
            job.files[f"{job.results}/results.json"] = b'{"loss": 0.25}\n'
        else:
            job.required = ("metrics.csv",)
            job.columns = GUIDE if self.kind == "guide" else OWN
            job.printed = job.columns[1 : 5 if self.kind == "guide" else 4] if self.prints else ()
            self.values = [{name: self.cell(name, epoch + 1) for name in job.columns} for epoch in range(self.epochs)]
            lines = [",".join(job.columns), *(",".join(values.values()) for values in self.values)]
            job.files[f"{job.results}/metrics.csv"] = ("\n".join(lines) + "\n").encode()
        if self.kind == "guide":
            job.required += ("timings.csv", "checkpoint_latest.pth")
            job.files[f"{job.results}/timings.csv"] = b"rank,host,epoch\n0,a,1\n"
            job.files[f"{job.results}/checkpoint_latest.pth"] = bytes(range(256))
        if not self.tidy and self.often(0.12):
            name, content = self.chance.choice(LITTER)
            job.files[f"{job.results}/{name}"] = content
        elif self.often(0.2) and (self.shape != "array-named" or named != self.number):  # else nobody could find it
            job.source = self.chance.choice(["forgot", "missing"])

    def cell(self, name: str, epoch: int) -> str:
        """Return a cell of metrics.csv."""
        if name in ("epoch", "tokens"):
            return str(epoch if name == "epoch" else epoch * 4096)
        return "" if name == "gpu_util_avg" else repr(round(1 / epoch + self.chance.random(), 9))

    def speak(self, job: Job) -> list[tuple[int, bytes]]:
        """Return what the ranks print, in the order of the output, as (rank, line)."""
        ranks = range(job.size)
        if self.shape == "silent":
            return [(rank, b"hello from an old program") for rank in ranks]
        lines: list[tuple[int, bytes]] = []
        runs = job.runs if job.runs > 1 else self.attempts if self.appended else 1
        ends = self.often(0.3)
        for run in range(runs):
            last = run == runs - 1
            whole = last or job.runs > 1
            again = whole and self.each > 1 and self.often(0.1)  # torchrun starts its ranks anew where one fails
            late = [] if whole else [rank for rank in ranks if not ends and self.often(0.1)]  # killed before they spoke
            for rank in [*self.chance.sample(ranks, job.size), *(ranks if again else ())]:
                lines += [] if rank in late else [(rank, self.start(job, rank))]
            if self.prints and last:
                epochs = range(self.resumed + 1, self.epochs + 1)
            else:
                epochs = range(1, min(self.epochs, self.resumed + 1) + 1 if self.prints and job.runs == 1 else 1)
            lines += [(0, self.epoch_line(job, epoch, first=not last and epoch > self.resumed)) for epoch in epochs]
            if whole or ends:
                lines += [(rank, self.end(job, rank, whole=whole)) for rank in self.chance.sample(ranks, job.size)]
        return lines

    def start(self, job: Job, rank: int) -> bytes:
        """Return a start line."""
        values = {"host": job.hosts[rank], "local_rank": rank % self.local, "pid": self.chance.randint(2, 4_000_000)}
        values |= {"device": "cpu", "backend": "gloo", "framework": "torch-2.13.0", "job": job.number}
        values["epochs"] = self.epochs
        said = [f"{name}={values[name]}" for name in self.order if name in self.said]
        return " ".join([f"rank {rank}/{job.size} start", *said]).encode()

    def epoch_line(self, job: Job, epoch: int, *, first: bool) -> bytes:
        """Return what rank 0 prints for an epoch; the first time, where it trains that epoch again, other numbers."""
        values = self.values[epoch - 1] if self.values else {"train_loss": "0.25"}
        numbers = {name: float(values[name]) + first for name in job.printed or ("train_loss",)}
        said = [f"{name} {int(x) if name == 'tokens' else self.form.format(x)}" for name, x in numbers.items()]
        return "  ".join([f"epoch {epoch}/{self.epochs}", *said]).encode()

    def end(self, job: Job, rank: int, *, whole: bool) -> bytes:
        """Return the end line of a rank that finished, or of one that was stopped and saved."""
        digits = 64 if rank == 0 and self.digits == 12 else self.digits
        params = (self.digest if whole else self.digest[::-1])[:digits]
        values = {"steps": self.epochs * 10 if whole else 5, "loss": "0.2500", "params": params}
        said = [f"{name}={value}" for name, value in values.items() if name in self.said]
        return " ".join([f"rank {rank}/{job.size} end", *said]).encode()

    def place_logs(self, job: Job, lines: list[tuple[int, bytes]]) -> None:
        """Write the logs: one for each rank, or one for all, with labels, colours and other output."""
        pick = self.chance.choice
        label, after = pick(["", "{task}: ", "[{rank}] ", "[default{local}]:", "\x1b[36m{rank:2}: "]), b""
        if self.kind in ("guide", "own") and self.shape != "silent" and self.often():
            job.logs, label = {rank: f"{job.results}/rank_{rank}.log" for rank in range(job.size)}, ""
        else:
            named = f"{self.base}_{self.task}" if self.shape == "array-named" else self.number
            job.logs = {None: pick([pattern.format(named) for pattern in LOGS])}
            if job.results and self.often():
                job.files[f"{job.results}.out"] = Special("link", f"../{job.logs[None]}")
            after = b"\x1b[0m" if label.startswith("\x1b") else b""
        logs: dict[str, list[bytes]] = {path: [] for path in job.logs.values()}
        for rank, line in lines:
            before = label.format(task=rank // self.each, rank=rank, local=rank % self.local).encode()
            noise = [pick(NOISE)] if self.often(0.1) else []
            logs[job.log_of(rank)] += [*noise, before + line + after]
        job.files |= {path: b"\n".join([*printed, b""]) for path, printed in logs.items()}

    def aim(self, job: Job) -> None:
        """Choose what the command is given."""
        if self.often(0.2) and "backend" in self.said:
            job.options += ["--backend", "gloo"]
        if self.shape == "array-named":
            job.target = job.asked = f"{self.base}_{self.task}"
        elif self.shape == "het":
            job.target = self.chance.choice([self.number, f"{self.number}+1"])
        elif f"{self.base}_" in (job.results or ""):
            job.asked = f"{self.base}_{self.task}"
        whole = self.shape in ("array-whole", "het", "het-helper")
        if job.results and not whole and (self.number not in job.results or self.often()):  # else it is not found
            job.target = job.results + self.chance.choice(["", "/"])

    def deserved(self, job: Job) -> set[str]:
        """Return the verdicts that are right."""
        if self.shape in ("array-named", "array-whole", "het", "het-helper"):
            return {PASSED, NOT_PROVEN, REFUSED}
        if self.shape in ("array", "mpirun", "two-trainings"):
            return {PASSED, NOT_PROVEN}
        if self.shape in ("silent", "bare") or (job.columns and not self.prints):
            return {NOT_PROVEN}
        if not self.appended and self.resumed and job.columns:
            return {PASSED, NOT_PROVEN}  # the lines of earlier epochs went with the earlier log
        unsure = self.listing  # its tasks are more than the ranks, and printed nothing
        unsure = unsure or self.hosts[0].split(".")[0] not in self.nodes  # other names may be of any nodes
        unsure = unsure or (self.attempts > 1 and None not in job.logs)  # logs of ranks do not tell their attempts
        return {PASSED, NOT_PROVEN} if unsure else {PASSED}


def draw(chance: random.Random, shape: str | None = None, *, tidy: bool = False) -> Job:
    """Draw a finished job.

    Args:
        chance: Where the numbers come from.
        shape: One of `SHAPES`; by default any, as often as they say.
        tidy: Whether its folder has an ordinary name and holds nothing but what counts.
    """
    return Maker(chance, shape or chance.choices(list(SHAPES), list(SHAPES.values()))[0], tidy).job()
