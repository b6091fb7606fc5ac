"""What the generations tell a job: recorded as data, and what the simulation makes of it."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path

from srunbook import cluster
from srunbook._files import write_whole

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "src" / "srunbook" / "simulate" / "recorded"
TABLE = ROOT / "docs" / "about" / "generations.csv"

LAYOUTS = (
    ({"nodes": 2, "ntasks_per_node": 2}, ["--nodes=2", "--ntasks-per-node=2"]),
    (
        {"nodes": 2, "ntasks_per_node": 2, "cpus_per_task": 2},
        ["--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2"],
    ),
    ({"nodes": 3, "ntasks_per_node": "4(x2),3"}, ["--nodes=3", "--ntasks=11", "--ntasks-per-node=4"]),
    (
        {"nodes": 2, "ntasks_per_node": 2, "gpus_per_node": 4},
        ["--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=4"],
    ),
)
"""Layouts whose step environments are recorded, in the words of `srunbook simulate` and of sbatch."""

KEPT = re.compile(r"(SLURM|SLURMD|CUDA|ROCR|GPU|ZE)_\w+|JAX_NUM_CPU_DEVICES")


PROBE = """\
#!/bin/bash
env -0 >batch.env
srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} bash -c 'env -0 >task-$SLURM_PROCID.env'
"""


def read(path: Path) -> dict[str, str]:
    pairs = (item.partition("=") for item in path.read_text(encoding="utf-8", errors="replace").split("\0"))
    return {name: value for name, _, value in sorted(pairs) if KEPT.fullmatch(name)}


def test_step_environments_are_those_recorded(slurm, until, tmp_path, request):
    """Srun gives every task of every layout the variables that are recorded for this generation."""
    generation = slurm.root["slurm"].rsplit(".", 1)[0]
    layouts = []
    script = tmp_path / "probe.sbatch"
    script.write_text(PROBE)
    for layout, options in LAYOUTS:
        until(lambda: set(cluster.node_states(slurm).values()) == {"idle"})  # or it runs elsewhere
        inside = cluster.stage(slurm, script)
        job = cluster.submit(slurm, script, options=options, folder=inside)
        assert job.state == "COMPLETED", job.output
        folder = slurm.folder / inside.lstrip("/")
        files = sorted(folder.glob("task-*.env"), key=lambda path: int(path.stem.partition("-")[2]))
        tasks = [read(path) for path in files]
        layouts.append({"layout": layout, "sbatch": options, "batch": read(folder / "batch.env"), "tasks": tasks})
    path = RECORDED / f"{generation}.json"
    if request.config.getoption("--record"):
        stamp = {"schema": 1, "slurm": slurm.root["slurm"], "date": datetime.now(UTC).date().isoformat()}
        write_whole(path, json.dumps({**stamp, "layouts": layouts}, indent=1) + "\n")
    recorded = json.loads(path.read_text(encoding="utf-8"))["layouts"]

    for before, after in zip(recorded, layouts, strict=True):
        assert before["sbatch"] == after["sbatch"]
        assert [set(task) for task in before["tasks"]] == [set(task) for task in after["tasks"]]
        pairs = zip(map(forms, before["tasks"]), map(forms, after["tasks"]), strict=True)
        assert [(name, was[name], now[name]) for was, now in pairs for name in was if was[name] != now[name]] == []


VARYING = {
    "SLURM_JOB_ID": "Slurm numbers jobs as they come",
    "SLURM_JOBID": "Slurm numbers jobs as they come",
    "SLURM_TASK_PID": "the kernel numbers processes as they come",
    "SLURM_SRUN_COMM_PORT": "the kernel chooses free ports",
    "SLURM_STEP_LAUNCHER_PORT": "the kernel chooses free ports",
    "SLURM_JOB_START_TIME": "the job ran at another time",
    "SLURM_JOB_END_TIME": "the job ran at another time",
    "SLURM_SUBMIT_DIR": "each submission has a folder of its own",
    "SLURM_PRIO_PROCESS": "the tests may run at a lower priority",
}


def forms(task: dict[str, str]) -> dict[str, str]:
    """Return the values of a task, with what may vary reduced to its form."""
    return {name: re.sub(r"\d+", "0", value) if name in VARYING else value for name, value in task.items()}


ALLOCATED = """\
until n=$(sacct -nPj $SLURM_JOB_ID.0 -o AllocCPUS); [ -n "$n" ]; do sleep 0.2; done
echo $n
"""

QUESTIONS = (
    (
        "CPUs of a step with 2 tasks (`srun --exact`) in a job with `--cpus-per-task=2`, if srun does not repeat it",
        ["--nodes=1", "--ntasks=2", "--cpus-per-task=2"],
        f"srun --exact true\n{ALLOCATED}",
    ),
    (
        "The same, if srun repeats `--cpus-per-task=$SLURM_CPUS_PER_TASK`",
        ["--nodes=1", "--ntasks=2", "--cpus-per-task=2"],
        f"srun --exact --cpus-per-task=$SLURM_CPUS_PER_TASK true\n{ALLOCATED}",
    ),
    (
        "SLURM_NTASKS in the batch shell with `--nodes=2 --ntasks-per-node=2`",
        ["--nodes=2", "--ntasks-per-node=2"],
        "echo $SLURM_NTASKS\n",
    ),
    (
        "SLURM_NTASKS in the batch shell with `--nodes=2 --ntasks=4`",
        ["--nodes=2", "--ntasks=4"],
        "echo $SLURM_NTASKS\n",
    ),
    ("SLURM_TASKS_PER_NODE with `--nodes=3 --ntasks=11`", ["--nodes=3", "--ntasks=11"], "echo $SLURM_TASKS_PER_NODE\n"),
    (
        "SLURM_TRES_PER_TASK in the batch shell with `--cpus-per-task=2`",
        ["--cpus-per-task=2"],
        "echo $SLURM_TRES_PER_TASK\n",
    ),
    (
        "The message of srun if the batch shell changes SLURM_CPUS_PER_TASK from 2 to 1",
        ["--cpus-per-task=2"],
        "SLURM_CPUS_PER_TASK=1 srun true 2>&1 | head -n 1 | grep . || echo nothing\n",
    ),
    (
        "SLURM_GPUS_PER_NODE with `--gpus-per-node=a100:2`",
        ["--gpus-per-node=a100:2"],
        "echo $SLURM_GPUS_PER_NODE\n",
    ),
    (
        "SLURM_GPUS_ON_NODE in a task with `--gpus-per-node=a100:2`",
        ["--gpus-per-node=a100:2"],
        "srun bash -c 'echo $SLURM_GPUS_ON_NODE'\n",
    ),
    ("SLURM_JOB_END_TIME in the batch shell", [], "echo ${SLURM_JOB_END_TIME:+set}\n"),
    (
        "The message of slurmstepd about a task that exceeds its memory",
        ["--mem=100M"],
        "srun python3 -c 'bytearray(300 * 2**20)' 2>&1 | grep -o 'Detected.*' | head -n 1"
        " | sed 's/StepId=[0-9.]*[0-9]/StepId=N/'\n",
    ),
    (
        "A job whose `--output` folder is missing",
        [],
        "job=$(sbatch --parsable --output=missing/%j.out --wrap=true)\n"
        "until set -- $(sacct -nPXj $job -o State,ExitCode | tr '|' ' '); [[ $1 =~ COMPLETED|FAILED ]]; do\n"
        "    sleep 0.2\n"
        "done\n"
        'echo "$1 $2, the folder is $([ -d missing ] && echo created || echo not created)"\n',
    ),
    (
        "CUDA_VISIBLE_DEVICES in the second task with `--ntasks=2 --gpus-per-task=a100:1`",
        ["--ntasks=2", "--gpus-per-task=a100:1"],
        "srun bash -c '[ $SLURM_PROCID = 0 ] || echo $CUDA_VISIBLE_DEVICES'\n",
    ),
)
"""Questions whose answers may differ between generations: the row's name, options of sbatch, and the job's commands."""


def test_differences_between_generations_are_those_recorded(slurm, tmp_path, request):
    """The column of this generation in the table of differences is what probes find."""
    generation = slurm.root["slurm"].rsplit(".", 1)[0]
    jobs = {}
    for question, arguments, commands in QUESTIONS:
        script = tmp_path / "question.sbatch"
        script.write_text(f"#!/bin/bash\n{commands}")
        # One after the other: what else runs on the nodes may change an answer.
        options = ["--parsable", "--job-name=question", "--dependency=singleton", *arguments]
        asked = cluster.capture(slurm, ["sbatch", *options, script.name], folder=cluster.stage(slurm, script))
        assert asked.returncode == 0, asked.stderr
        jobs[question] = asked.stdout.strip()
    answers = {question: cluster.await_job(slurm, job).output.strip() or "not set" for question, job in jobs.items()}
    text = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    rows = {row["Question"]: row for row in csv.DictReader(io.StringIO(text))}
    if request.config.getoption("--record"):
        columns = ["Question", *cluster.GENERATIONS]
        stream = io.StringIO()
        writer = csv.DictWriter(stream, columns, lineterminator="\n", restval="")
        writer.writeheader()
        for question, _, _ in QUESTIONS:
            rows.setdefault(question, {"Question": question})[generation] = answers[question]
            writer.writerow({name: rows[question].get(name, "") for name in columns})
        write_whole(TABLE, stream.getvalue())

    assert {question: rows[question][generation] for question in answers} == answers
